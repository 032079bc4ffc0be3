"""What a graph makes of `segments`, which positions belong to one text, and the sparse head."""

from collections.abc import Collection

import numpy as np
from onnx import TensorProto

from .encoder import NORM_FLOOR, SparseHead
from .graph_builder import GraphBuilder

PENALTY = -10000.0
"""Added to the attention scores of other texts: exp() of it is zero, and even with a large negative
score added it stays a finite fp16 number (whose lowest is -65504)."""
SAME_TEXT = "segments.same"
"""bool `[rows, 1, length, length]`: of each pair of positions."""
ZERO = "zero"
COLUMN_AXES, ROW_AXES = "pairs.column.axes", "pairs.row.axes"
"""Which axes a position's own number does not have."""


def attention_penalties(
    builder: GraphBuilder, windows: Collection[int | None], *, causal: bool
) -> dict[int | None, str]:
    """0 where a token sees another and PENALTY elsewhere: f32 `[rows, 1, length, length]` each.

    It sees its text as far as the window, if there is one, and if `causal` nothing behind itself.
    Padding sees padding, so that all of it stays finite.
    """
    builder.ints(COLUMN_AXES, 1, 3)
    builder.ints(ROW_AXES, 1, 2)
    same = equal_pairs(builder, "segments", SAME_TEXT)
    distance = distance_of_pairs(builder) if causal or any(windows) else ""
    if causal:
        here = builder.integer("causal.here", 0)
        before = builder.op("LessOrEqual", [distance, here], "causal.before")
        same = builder.op("And", [same, before], "causal.seen")
    choices = [builder.floats(ZERO, 0.0), builder.floats("penalty.number", PENALTY)]
    found = {}
    if None in windows:
        found[None] = builder.op("Where", [same, *choices], "penalty")
    for window in filter(None, windows):
        name = f"window{window}"
        far = builder.op("Abs", [distance], f"{name}.far")
        reach = builder.integer(name, window)
        near = builder.op("LessOrEqual", [far, reach], f"{name}.near")
        seen = builder.op("And", [same, near], f"{name}.seen")
        found[window] = builder.op("Where", [seen, *choices], f"penalty.{name}")
    return found


def distance_of_pairs(builder: GraphBuilder) -> str:
    """Position of the second of each pair minus that of the first: int32, of its own text."""
    sides = [as_row(builder, "positions"), as_column(builder, "positions")]
    return builder.op("Sub", sides, "pairs.distance")


def second_texts(builder: GraphBuilder, separator: int) -> str:
    """1 for the tokens of a pair behind its first separator, else 0: f32 `[rows, length, 1]`."""
    wanted = builder.integer("pair.separator", separator)
    found = builder.op("Equal", ["input_ids", wanted], "pair.separators")
    last = builder.integer("pair.last", -1)
    before = builder.op("LessOrEqual", [distance_of_pairs(builder), last], "pair.before")
    own = builder.op("And", [SAME_TEXT, as_row(builder, found)], "pair.own")
    seen = builder.op("And", [own, before], "pair.seen")
    numbers = builder.op("Cast", [seen], "pair.numbers", to=TensorProto.FLOAT)
    count = over_pairs(builder, "ReduceSum", numbers, "pair.count")
    second = builder.op("Min", [count, builder.floats("pair.most", 1.0)], "pair.second")
    return builder.op("Unsqueeze", [second, builder.ints("pair.axis", 2)], "pair.is_second")


def relative_bias(builder: GraphBuilder, by_distance: np.ndarray) -> str:
    """What each head adds for the distance of key and query: f32 `[rows, heads, length, length]`.

    `by_distance` f32 `[distances, heads]` has the distance 0 in the middle; further ones are like
    the first and the last.
    """
    reach = len(by_distance) // 2
    distance = distance_of_pairs(builder)
    least = builder.integer("pairs.distance.least", -reach)
    largest = builder.integer("pairs.distance.largest", reach)
    # Not Clip, which TensorRT has for floats only.
    near = builder.op("Max", [distance, least], "pairs.distance.from")
    near = builder.op("Min", [near, largest], "pairs.distance.near")
    place = builder.op("Add", [near, largest], "pairs.distance.place")
    flat = builder.op("Squeeze", [place, builder.ints("pairs.axis", 1)], "pairs.distance.flat")
    table = builder.floats("relative.table", by_distance)
    found = builder.op("Gather", [table, flat], "relative.found")
    return builder.op("Transpose", [found], "relative", perm=[0, 3, 1, 2])


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


def token_weights(builder: GraphBuilder, hidden: str, head: SparseHead) -> str:
    """relu(linear(hidden)) for each position, zero for padding: f32 `[rows, length]`.

    With an exponent the weights of a text are divided by their norm.
    """
    weight = np.asarray(head.weights, np.float32).reshape(1, -1)
    if head.piece_biases is None:
        logits = builder.linear(hidden, "sparse", weight, np.asarray([head.bias], np.float32))
    else:
        product = builder.op(
            "MatMul", [hidden, builder.floats("sparse.weight", weight.T)], "sparse.product"
        )
        table = builder.floats("sparse.pieces", head.piece_biases.reshape(-1, 1))
        bias = builder.op("Gather", [table, "input_ids"], "sparse.bias")
        logits = builder.op("Add", [product, bias], "sparse")
    flat = builder.op("Squeeze", [logits, builder.ints("sparse.axis", 2)], "sparse.flat")
    if head.repeat_weight:
        flat = _add_repeats(builder, flat, head.repeat_weight)
    positive = builder.op("Relu", [flat], "sparse.positive")
    first = builder.integer("sparse.first", 0)
    real = builder.op("GreaterOrEqual", ["segments", first], "sparse.real")
    if head.norm_exponent == 0.0:
        return builder.op("Where", [real, positive, ZERO], "token_weights")
    kept = builder.op("Where", [real, positive, ZERO], "sparse.kept")
    return _divide_by_norm(builder, kept, head.norm_exponent)


def _add_repeats(builder: GraphBuilder, flat: str, weight: float) -> str:
    """Adds weight · log(how often the position's text has its id)."""
    same_id = equal_pairs(builder, "input_ids", "sparse.repeats.ids")
    same = builder.op("And", [same_id, SAME_TEXT], "sparse.repeats.same")
    numbers = builder.op("Cast", [same], "sparse.repeats.numbers", to=TensorProto.FLOAT)
    count = over_pairs(builder, "ReduceSum", numbers, "sparse.repeats.count")
    logarithm = builder.op("Log", [count], "sparse.repeats.log")
    scale = builder.floats("sparse.repeats.weight", weight)
    scaled = builder.op("Mul", [logarithm, scale], "sparse.repeats")
    return builder.op("Add", [flat, scaled], "sparse.repeated")


def _divide_by_norm(builder: GraphBuilder, kept: str, exponent: float) -> str:
    """Divides by the norm of the position's text.

    A choice and a sum, no product of matrices: OpenVINO rounds to bf16 what goes into those.
    """
    own = builder.op("Where", [SAME_TEXT, as_row(builder, kept), ZERO], "sparse.norm.own")
    norm = over_pairs(builder, "ReduceL2", own, "sparse.norm")
    floor = builder.floats("sparse.norm.least", NORM_FLOOR)
    safe = builder.op("Max", [norm, floor], "sparse.norm.floor")
    power = builder.floats("sparse.norm.exponent", exponent)
    divisor = builder.op("Pow", [safe, power], "sparse.norm.power")
    return builder.op("Div", [kept, divisor], "token_weights")
