"""How a server is asked for dense vectors: the route, the form of a body, and what is answered.

Only servers that do the same work are compared.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from default_package.errors import PackageError
from default_package.reference import cosine

LOOKED_AT = 8
"""So many texts are looked at."""
TIMEOUT_S = 120
"""A server may load its model when it is first asked."""
SHOWN_CHARS = 300
SAME_COSINE = 0.99
"""Half precision changes less."""


@dataclass(frozen=True)
class Dialect:
    """One form of requests."""

    name: str
    route: str
    input: str
    """The field with the texts."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What stands beside it."""

    def body(self, texts: str | list[str]) -> dict[str, Any]:
        """One request, for one text or several."""
        return {self.input: texts, **self.fields}


ROUTE = "/v1/embeddings"
BASE64 = Dialect("base64", ROUTE, "input", {"encoding_format": "base64"})
FLOATS = Dialect("float", ROUTE, "input", {"encoding_format": "float"})
TEI = Dialect("tei", "/embed", "inputs", {"truncate": True})
"""text-embeddings-inference; it knows no base64 here."""


@dataclass(frozen=True)
class Target:
    """A server, how it is asked, and its name in tables."""

    url: str
    dialect: Dialect = BASE64
    name: str = "duovec"

    @property
    def address(self) -> str:
        return self.url + self.dialect.route


def ask(target: Target, texts: list[str]) -> list[np.ndarray]:
    """One vector for each text. Raises PackageError when the answer is something else."""
    advice = "is the address right, and --dialect?"
    try:
        answer = httpx.post(target.address, json=target.dialect.body(texts), timeout=TIMEOUT_S)
    except httpx.HTTPError as error:
        raise PackageError(f"{target.address} cannot be asked ({error}): {advice}") from error
    try:
        found = _read(answer.json())
    except (ValueError, TypeError, KeyError) as error:
        said = " ".join(answer.text.split())[:SHOWN_CHARS]
        raise PackageError(
            f"{target.address} answered {answer.status_code}, {said}: {advice}"
        ) from error
    if len(found) != len(texts):
        raise PackageError(
            f"{target.address} answered {len(found)} vectors for {len(texts)} texts: {advice}"
        )
    return found


def _read(answer: Any) -> list[np.ndarray]:
    """OpenAI's form, or a plain list of vectors."""
    if isinstance(answer, dict):
        answer = [item["embedding"] for item in answer["data"]]
    return [
        np.frombuffer(base64.b64decode(one, validate=True), "<f4")
        if isinstance(one, str)
        else np.asarray(one, np.float64)
        for one in answer
    ]


def likeness(own: list[np.ndarray], other: list[np.ndarray]) -> str:
    """Whether both servers seem to run the same model, in words."""
    sizes = len(own[0]), len(other[0])
    if sizes[0] != sizes[1]:
        return f"ANOTHER MODEL: vectors of {sizes[1]} numbers, ours have {sizes[0]}"
    # A vector without a direction gives no number, and neither does the least of all then.
    least = float(np.min([cosine(one, two) for one, two in zip(own, other, strict=True)]))
    if not least >= SAME_COSINE:
        return f"OTHER VECTORS than ours, cosine {least:.3f}: another model, or another prompt"
    return f"the same vectors as ours, cosine at least {least:.4f}"
