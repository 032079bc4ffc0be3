"""Passages, and queries that say which passages answer them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Passage:
    """One text of a pool."""

    lang: str
    group: str
    """The page or section it comes from, the same for all translations."""
    text: str


@dataclass(frozen=True)
class Query:
    """One question to the pool of `target_lang`."""

    lang: str
    target_lang: str
    kind: str
    group: str
    text: str
    relevant: tuple[int, ...]
    """Positions in the collection's passages."""


@dataclass
class Collection:
    """All passages and queries of one domain."""

    passages: list[Passage] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
