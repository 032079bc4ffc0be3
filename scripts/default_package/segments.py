"""What a graph makes of `segments`: which positions belong to one text."""

from __future__ import annotations

from .graph_builder import GraphBuilder

PENALTY = -10000.0
"""Added to the attention scores of other texts: exp() of it is zero, and even with a large negative
score added it stays a finite fp16 number (whose lowest is -65504)."""
SAME_TEXT = "segments.same"
"""bool `[rows, 1, length, length]`: of each pair of positions."""
ZERO = "zero"
COLUMN_AXES, ROW_AXES = "pairs.column.axes", "pairs.row.axes"
"""Which axes a position's own number does not have."""


def attention_penalty(builder: GraphBuilder) -> str:
    """0 within a text and PENALTY elsewhere: f32 `[rows, 1, length, length]`.

    Padding sees padding, so that all of it stays finite.
    """
    builder.ints(COLUMN_AXES, 1, 3)
    builder.ints(ROW_AXES, 1, 2)
    same = equal_pairs(builder, "segments", SAME_TEXT)
    choices = [builder.floats(ZERO, 0.0), builder.floats("penalty.number", PENALTY)]
    return builder.op("Where", [same, *choices], "penalty")


def equal_pairs(builder: GraphBuilder, numbers: str, output: str) -> str:
    """Whether two positions have the same number: bool `[rows, 1, length, length]`.

    The numbers must be below 2^24: OpenVINO compares them as f32.
    """
    sides = [as_column(builder, numbers), as_row(builder, numbers)]
    return builder.op("Equal", sides, output)


def as_column(builder: GraphBuilder, source: str) -> str:
    """`[rows, length]` -> `[rows, 1, length, 1]`, for the first of each pair."""
    return builder.op("Unsqueeze", [source, COLUMN_AXES], f"{source}.column")


def as_row(builder: GraphBuilder, source: str) -> str:
    """`[rows, length]` -> `[rows, 1, 1, length]`, for the second of each pair."""
    return builder.op("Unsqueeze", [source, ROW_AXES], f"{source}.row")


def over_pairs(builder: GraphBuilder, kind: str, pairs: str, output: str) -> str:
    """A sum over the second of each pair: `[rows, length]`."""
    return builder.op(kind, [pairs, COLUMN_AXES], output, keepdims=0)
