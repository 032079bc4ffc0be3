"""Texts as a graph takes them: packed into rows, several one behind the other.

A batch is `[rows, length]`. A text gives one dense vector, so it has one span.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .reference import select_sparse

LENGTH = 128
"""Of a row, unless a text is longer."""
BATCH_TOKENS = 1024
"""Of one run, padding included: throughput is flat from about 300 on."""
OPEN_ROWS = 16
"""Rows that still take a text: little room is left over, and packing stays linear."""
SPAN_TOKENS = 8
"""Room that a span takes at least, since a row has a span for each so many tokens."""


@dataclass(frozen=True)
class Place:
    """Where a text is in its batch."""

    text: int
    """Its number among those that were packed."""
    row: int
    segment: int
    """Its number in the row, which is its span's too."""
    tokens: slice
    """Its positions of the row."""


@dataclass(frozen=True)
class Found:
    """What a graph gives for one text."""

    dense: np.ndarray
    token_weights: np.ndarray
    token_vectors: np.ndarray | None = None
    words: dict[int, float] | None = None
    """Weights of the strongest, none of which is zero, of a model that has them."""

    def lexical(self, token_ids: list[int], dropped: set[int]) -> dict[int, float]:
        """The text's weights by id, ascending."""
        if self.words is not None:
            return dict(sorted(self.words.items()))
        return dict(zip(*select_sparse(token_ids, self.token_weights, dropped), strict=True))


@dataclass(frozen=True)
class Outputs:
    """What a graph gives for a batch. Token weights are zeros for a graph without a head."""

    dense: np.ndarray
    token_weights: np.ndarray
    token_vectors: np.ndarray | None = None
    words: tuple[np.ndarray, np.ndarray] | None = None
    """Ids and weights."""


@dataclass(frozen=True)
class Batch:
    """What a graph runs at once."""

    inputs: dict[str, np.ndarray]
    places: list[Place]

    def split(self, ran: Outputs) -> dict[int, Found]:
        """The graph's outputs, by the number of the text."""
        vectors = ran.token_vectors
        return {
            at.text: Found(
                ran.dense[at.row, at.segment],
                ran.token_weights[at.row, at.tokens],
                None if vectors is None else vectors[at.row, at.tokens],
                ran.words and strongest(*(part[at.row, at.segment] for part in ran.words)),
            )
            for at in self.places
        }


def strongest(ids: np.ndarray, weights: np.ndarray) -> dict[int, float]:
    """Weights by id, without zeros."""
    pairs = zip(ids.tolist(), weights.tolist(), strict=True)
    return {word: weight for word, weight in pairs if weight > 0.0}


def span_count(length: int) -> int:
    """Spans of a row."""
    return max(1, length // SPAN_TOKENS)


def batches(sequences: Sequence[Sequence[int]], pad: int, pooling: str) -> Iterator[Batch]:
    """All sequences of token ids, each in one batch."""
    by_length: dict[int, list[list[int]]] = defaultdict(list)
    for length, texts in _pack([len(sequence) for sequence in sequences]):
        by_length[length].append(texts)
    for length, rows in sorted(by_length.items()):
        step = max(1, BATCH_TOKENS // length)
        for start in range(0, len(rows), step):
            yield batch(sequences, rows[start : start + step], length, pad, pooling)


def alone(sequence: Sequence[int], pooling: str = "mean") -> Batch:
    """One text in a row that has no padding."""
    return batch([sequence], [[0]], len(sequence), 0, pooling)


def batch(
    sequences: Sequence[Sequence[int]],
    rows: list[list[int]],
    length: int,
    pad: int,
    pooling: str,
) -> Batch:
    """The sequences whose numbers are in `rows`; a row without any is padding."""
    ids = np.full((len(rows), length), pad, np.int32)
    positions = np.zeros((len(rows), length), np.int32)
    segments = np.full((len(rows), length), -1, np.int32)
    span_weights = np.zeros((len(rows), span_count(length), length), np.float32)
    places = []
    for row, texts in enumerate(rows):
        start = 0
        for segment, text in enumerate(texts):
            count = len(sequences[text])
            tokens = slice(start, start + count)
            ids[row, tokens] = sequences[text]
            positions[row, tokens] = np.arange(count)
            segments[row, tokens] = segment
            if pooling == "cls":
                span_weights[row, segment, start] = 1.0
            elif pooling == "last":
                span_weights[row, segment, start + count - 1] = 1.0
            else:
                span_weights[row, segment, tokens] = 1.0 / count
            places.append(Place(text, row, segment, tokens))
            start += room(count)
    inputs = {"input_ids": ids, "positions": positions, "segments": segments}
    return Batch(inputs | {"span_weights": span_weights}, places)


def room(count: int) -> int:
    """Tokens of a row that a text of `count` takes."""
    return max(count, SPAN_TOKENS)


def _pack(counts: list[int]) -> list[tuple[int, list[int]]]:
    """Length and texts of each row: first-fit in order, over the rows that were opened last."""
    rows: list[tuple[int, list[int]]] = []
    left: list[int] = []
    for text, taken in enumerate(map(room, counts)):
        last = range(max(0, len(rows) - OPEN_ROWS), len(rows))
        row = next((row for row in last if left[row] >= taken), len(rows))
        if row == len(rows):
            length = LENGTH
            while length < taken:
                length *= 2
            rows.append((length, []))
            left.append(length)
        rows[row][1].append(text)
        left[row] -= taken
    return rows
