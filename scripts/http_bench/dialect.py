"""How a server is asked for dense vectors: the route, and the form of a body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
    """A server, and how it is asked."""

    url: str
    dialect: Dialect = BASE64

    @property
    def address(self) -> str:
        """Where requests go."""
        return self.url + self.dialect.route
