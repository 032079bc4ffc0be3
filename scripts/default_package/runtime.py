"""Runs a graph on this machine's CPU with OpenVINO, and lays texts out in rows as it takes them.

A batch is `[rows, length]`; a row has a text, or several one behind the other. A text gives one
dense vector, so it has one span.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import openvino

from .reference import Found

SPAN_TOKENS = 8
"""Room that a span takes at least, since a row has a span for each so many tokens."""
Arrays = dict[str, np.ndarray]
"""Inputs or outputs of a graph by their names."""


@dataclass(frozen=True)
class Place:
    """Where a text is in its batch."""

    text: int
    """Its number among those that were laid out."""
    row: int
    segment: int
    """Its number in the row, which is its span's too."""
    tokens: slice
    """Its positions of the row."""


@dataclass(frozen=True)
class Batch:
    """What a graph runs at once."""

    inputs: Arrays
    places: list[Place]

    def split(self, ran: Arrays) -> dict[int, Found]:
        """The graph's outputs, by the number of the text."""
        return {at.text: _found(ran, at) for at in self.places}


def _found(ran: Arrays, at: Place) -> Found:
    vectors, words = ran.get("token_vectors"), None
    if "words" in ran:
        ids, weights = (
            ran[name][at.row, at.segment].tolist() for name in ("words", "word_weights")
        )
        words = {word: weight for word, weight in zip(ids, weights, strict=True) if weight > 0.0}
    return Found(
        ran["dense"][at.row, at.segment],
        ran["token_weights"][at.row, at.tokens],
        None if vectors is None else vectors[at.row, at.tokens],
        words,
    )


def alone(sequence: Sequence[int], pooling: str = "mean") -> Batch:
    """One text in a row that has no padding."""
    return batch([sequence], [[0]], len(sequence), 0, pooling)


def batch(
    sequences: Sequence[Sequence[int]], rows: list[list[int]], length: int, pad: int, pooling: str
) -> Batch:
    """The sequences whose numbers are in `rows`; a row without any is padding."""
    ids = np.full((len(rows), length), pad, np.int32)
    positions = np.zeros((len(rows), length), np.int32)
    segments = np.full((len(rows), length), -1, np.int32)
    spans = max(1, length // SPAN_TOKENS)
    span_weights = np.zeros((len(rows), spans, length), np.float32)
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


class Runtime:
    """A compiled model, which computes in f32 but for what the graph rounds itself."""

    def __init__(self, path: Path) -> None:
        settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        self.compiled = openvino.Core().compile_model(str(path), "CPU", settings)

    def run_rows(self, inputs: Arrays) -> Arrays:
        """All outputs of a batch; token weights are zeros for a graph without a head."""
        result = self.compiled(inputs)
        found = {port.any_name: np.array(result[port]) for port in self.compiled.outputs}
        return {"token_weights": np.zeros(inputs["input_ids"].shape, np.float32)} | found

    def run_batch(self, batch: Batch) -> dict[int, Found]:
        """What is found for each text of a batch, by its number."""
        return batch.split(self.run_rows(batch.inputs))

    def run(self, sequences: Sequence[Sequence[int]], pooling: str) -> list[Found]:
        """What is found for each sequence of token ids, which runs alone."""
        return [self.run_batch(alone(sequence, pooling))[0] for sequence in sequences]
