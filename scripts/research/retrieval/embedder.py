"""Where vectors come from: the running server's HTTP routes, or OpenVINO in this process."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from default_package.command import say
from default_package.errors import PackageError
from sparse_training import contrast, hidden_states
from sparse_training.hidden_states import Package

from .rankers import Embedded

REQUEST_TEXTS = 16
"""Texts of one request: an answer within seconds even on a busy machine."""
CONNECTIONS = 3
"""Requests under way: the server always has the next batch."""
TIMEOUT_S = 300
SAY_EVERY = 100
"""Requests between two progress lines."""


class Embedder(Protocol):
    """Called by the evaluation from one thread."""

    described: dict[str, str]
    """Model, engine, precision, and the way that the vectors come."""

    def embed(self, texts: Sequence[str], kind: str) -> list[Embedded]:
        """Dense and lexical vectors in order; `kind` is `query` or `passage`."""


class HttpEmbedder:
    """POST /v1/embeddings:both; the tokenizer of the package gives the token ids for BM25."""

    def __init__(self, url: str, package: Package) -> None:
        self._url, self._package = url.rstrip("/"), package
        health = self._get("/health")
        self.described = {
            "model": self._get("/v1/models")["data"][0]["id"],
            "engine": health["engine"],
            "precision": health["tuning"]["precision"],
            "way": "over HTTP",
        }

    def embed(self, texts: Sequence[str], kind: str) -> list[Embedded]:
        """Sends all texts in requests of REQUEST_TEXTS, longest neighbours together."""
        tokens = text_tokens(self._package, list(texts), kind)
        order = sorted(range(len(texts)), key=lambda i: (len(tokens[i]), i))
        parts = [order[i : i + REQUEST_TEXTS] for i in range(0, len(order), REQUEST_TEXTS)]
        found: dict[int, Embedded] = {}
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            answers = pool.map(lambda part: self._ask([texts[i] for i in part], kind), parts)
            for number, (part, answer) in enumerate(zip(parts, answers, strict=True)):
                for i, item in zip(part, answer["data"], strict=True):
                    found[i] = _decode(item, tokens[i])
                if number % SAY_EVERY == 0:
                    say(f"request {number} of {len(parts)} with {kind} texts")
        return [found[i] for i in range(len(texts))]

    def _ask(self, texts: list[str], kind: str) -> dict[str, Any]:
        body = {"input": texts, "input_type": kind, "encoding_format": "base64"}
        headers = {
            "content-type": "application/json",
            "x-request-timeout-ms": str(TIMEOUT_S * 1000),
        }
        return self._send("/v1/embeddings:both", json.dumps(body).encode(), headers)

    def _get(self, route: str) -> dict[str, Any]:
        return self._send(route, None, {})

    def _send(self, route: str, body: bytes | None, headers: dict[str, str]) -> dict[str, Any]:
        request = urllib.request.Request(self._url + route, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace")
            raise PackageError(f"{route} answered {error.code}: {reason}") from error
        except urllib.error.URLError as error:
            raise PackageError(
                f"no server at {self._url} ({error.reason}): start scripts/serve.sh first"
            ) from error


def _decode(item: dict[str, Any], tokens: tuple[int, ...]) -> Embedded:
    dense = np.frombuffer(base64.b64decode(item["embedding"]), "<f4")
    sparse = item["sparse_values"]
    ids = np.asarray(sparse["indices"], np.int64)
    return Embedded(dense, ids, np.asarray(sparse["values"], np.float32), tokens)


class DirectEmbedder:
    """The same numbers without a server and with any head. Hidden states are kept, so that a second
    head costs seconds."""

    BATCH_TEXTS = 500

    def __init__(self, package: Package, precision: str, cache: Path) -> None:
        self._package, self._precision, self._cache = package, precision, cache
        self._surprisal = package.surprisal()
        self.described = {
            "model": package.model,
            "engine": "openvino",
            "precision": precision,
            "way": "in the script's own process",
        }
        self.head, self.norm_exponent = contrast.stored_head()
        """A number for each feature of `contrast`."""

    def embed(self, texts: Sequence[str], kind: str) -> list[Embedded]:
        """Hidden states from the cache folder where they are there."""
        states = hidden_states.cached(
            self._package, list(texts), kind, self._precision, self._cache
        )
        store = contrast.TextStore(states, self._surprisal)
        found: list[Embedded] = []
        for first in range(0, len(states), self.BATCH_TEXTS):
            numbers = np.arange(first, min(first + self.BATCH_TEXTS, len(states)))
            batch = store.pick(numbers)
            weight = contrast.activate(batch, self.head, self.norm_exponent).weight
            live = (weight > 0.0) & (batch.token != contrast.PROMPT)
            ids, weight = batch.token[live], weight[live]
            bounds = np.searchsorted(batch.text[live], np.arange(len(numbers) + 1))
            found += [
                Embedded(states.dense[i], ids[low:high], weight[low:high], states.tokens(i))
                for i, low, high in zip(numbers, bounds[:-1], bounds[1:], strict=True)
            ]
        return found


def text_tokens(package: Package, texts: list[str], kind: str) -> list[tuple[int, ...]]:
    """Token ids of each text without prompt and dropped ids."""
    rows, first = package.encode(texts, kind)
    return [tuple(i for i in row[first:-1] if i not in package.dropped) for row in rows]
