"""Passages, and queries that say which passages answer them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Passage:
    """One text of a pool."""

    split: str
    """`train`, `validation`, `test`, or `left out`."""
    lang: str
    group: str
    """The page or section it comes from, the same for all translations."""
    text: str


@dataclass(frozen=True)
class Query:
    """One question to the pool of `target_lang` in the same split."""

    split: str
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

    def pool(self, split: str, lang: str) -> list[int]:
        """Positions of the passages that a query of this split and language ranks."""
        every = enumerate(self.passages)
        return [i for i, p in every if p.split == split and p.lang == lang]

    def part(self, *splits: str) -> Collection:
        """Only the given splits, renumbered."""
        kept = [i for i, passage in enumerate(self.passages) if passage.split in splits]
        new = {old: i for i, old in enumerate(kept)}
        queries = [
            Query(**{**asdict(query), "relevant": tuple(new[i] for i in query.relevant)})
            for query in self.queries
            if query.split in splits
        ]
        return Collection([self.passages[i] for i in kept], queries)
