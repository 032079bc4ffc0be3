"""What both clients share: everything but waiting and sending."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import httpx

from duovec import answer, question
from duovec.exchange import Request, Send
from duovec.question import LONGEST_S, Limits
from duovec.servers import Servers
from duovec.vectors import Dense, Paired, Sparse

CONNECT_TIMEOUT_S = 5.0
# The server answers at the deadline; its answer needs a moment to come.
GRACE_S = 1.0
# Requests under way at once for each server: one is computed while another is on its way.
REQUESTS_PER_SERVER = 2

Items = list[dict[str, Any]]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Kind(Generic[Result]):
    """A route, and what is made of its answers."""

    path: str
    forms: dict[str, str | bool]
    options: frozenset[str]
    read: Callable[[Items], Result]
    texts: int | None = None
    """The most texts of a request, where the answers are large."""


def _read_both(data: Items) -> Paired:
    return Paired(answer.dense(data), answer.sparse(data))


DENSE: Kind[Dense] = Kind(
    "/v1/embeddings",
    answer.DENSE_FORM,
    question.DenseOptions.__optional_keys__,
    answer.dense,
)
SPARSE: Kind[list[Sparse]] = Kind(
    "/v1/sparse-embeddings",
    answer.SPARSE_FORM,
    question.SparseOptions.__optional_keys__,
    answer.sparse,
)
TOKENS: Kind[list[Dense]] = Kind(
    "/v1/embeddings",
    answer.DENSE_FORM | {"token_vectors": True},
    question.Options.__optional_keys__,
    answer.tokens,
    texts=16,
)
BOTH: Kind[Paired] = Kind(
    "/v1/embeddings:both",
    answer.DENSE_FORM | answer.SPARSE_FORM,
    question.PairedOptions.__optional_keys__,
    _read_both,
)


@dataclass(frozen=True)
class Job:
    """The requests of one call: `request(n)` makes one, for `counts[n]` texts."""

    counts: list[int]
    request: Callable[[int], Request]


class Caller:
    """The settings of a client, and the requests of its calls."""

    def __init__(
        self,
        servers: str | Sequence[str],
        api_key: str | None,
        model: str | None,
        limits: Limits | None,
        parallel: int | None,
    ) -> None:
        self.servers = Servers(servers)
        self._headers = {"content-type": "application/json"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._model = model
        self._limits = limits or Limits()
        self.parallel = parallel or REQUESTS_PER_SERVER * len(self.servers.urls)

    def job(self, kind: Kind[Result], texts: Sequence[str], options: Mapping[str, Any]) -> Job:
        """What to send for a call.

        Raises TypeError or ValueError, before anything is sent, for what no server takes.
        """
        unknown = sorted(set(options) - kind.options)
        if unknown:
            raise TypeError(f"{unknown[0]!r} is no option here; those are {sorted(kind.options)}")
        limits = self._limits
        if kind.texts is not None:
            limits = replace(limits, texts=min(limits.texts, kind.texts))
        parts = question.split(texts, limits)
        urgency = question.urgency(len(texts), options)
        fields = question.fields(self._model, options) | kind.forms
        headers = self._headers | ({"x-priority": "bulk"} if urgency.bulk else {})

        def request(number: int) -> Request:
            first, end = parts[number]
            body = question.body(texts[first:end], fields)
            return Request(kind.path, body, headers, urgency, first)

        return Job([end - first for first, end in parts], request)


def joined(kind: Kind[Result], job: Job, bodies: Sequence[bytes]) -> Result:
    """The result of a call from its answers."""
    data: Items = []
    for content, count in zip(bodies, job.counts, strict=True):
        data += answer.items(content, count)
    return kind.read(data)


def timeouts(send: Send) -> httpx.Timeout:
    """Those of one try."""
    whole_s = min(send.timeout_s, LONGEST_S) + GRACE_S
    return httpx.Timeout(whole_s, connect=min(CONNECT_TIMEOUT_S, whole_s))
