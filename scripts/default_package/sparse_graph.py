"""The nodes of the sparse head: hidden states become lexical weights."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from .graph_builder import GraphBuilder
from .sparse_head import NORM_FLOOR, SparseHead


def token_weights(builder: GraphBuilder, hidden: str, mask: str, head: SparseHead) -> str:
    """relu(linear(hidden)) for each position, zero on padding: f32 `[batch, length]`.

    With an exponent the weights of a row are divided by their norm, to which padding adds nothing.
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
    if head.norm_exponent == 0.0:
        return builder.op("Mul", [positive, mask], "token_weights")
    kept = builder.op("Mul", [positive, mask], "sparse.kept")
    return _divide_by_norm(builder, kept, head.norm_exponent)


def _add_repeats(builder: GraphBuilder, flat: str, weight: float) -> str:
    """Adds weight · log(how often the row has the position's id). Padding equals no real token."""
    axis = builder.ints("sparse.repeats.axis", 2)
    columns = builder.op("Unsqueeze", ["input_ids", axis], "sparse.repeats.columns")
    one = builder.ints("sparse.repeats.one", 1)
    rows = builder.op("Unsqueeze", ["input_ids", one], "sparse.repeats.rows")
    same = builder.op("Equal", [columns, rows], "sparse.repeats.same")
    numbers = builder.op("Cast", [same], "sparse.repeats.numbers", to=TensorProto.FLOAT)
    count = builder.op("ReduceSum", [numbers, axis], "sparse.repeats.count", keepdims=0)
    logarithm = builder.op("Log", [count], "sparse.repeats.log")
    scale = builder.floats("sparse.repeats.weight", weight)
    scaled = builder.op("Mul", [logarithm, scale], "sparse.repeats")
    return builder.op("Add", [flat, scaled], "sparse.repeated")


def _divide_by_norm(builder: GraphBuilder, kept: str, exponent: float) -> str:
    axis = builder.ints("sparse.norm.axis", 1)
    norm = builder.op("ReduceL2", [kept, axis], "sparse.norm", keepdims=1)
    floor = builder.floats("sparse.norm.least", NORM_FLOOR)
    safe = builder.op("Max", [norm, floor], "sparse.norm.floor")
    power = builder.floats("sparse.norm.exponent", exponent)
    divisor = builder.op("Pow", [safe, power], "sparse.norm.power")
    return builder.op("Div", [kept, divisor], "token_weights")
