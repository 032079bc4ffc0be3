"""Writes model.onnx: a post-layer-norm BERT encoder with a dense and a sparse output.

A row has several texts, of which none sees another. Inputs, int32 `[rows, length]`: `input_ids`;
`positions`, of a token in its own text, from 0; `segments`, which text of the row a token belongs
to, from 0, and -1 for padding. `span_weights`, f32 `[rows, spans, length]`, says how much each
token counts in each span, of which each gives a dense vector.

Outputs: `dense`, f32 `[rows, spans, hidden]`, L2-normalized, zeros for a span without weights;
`token_weights`, f32 `[rows, length]`, as `sparse_head` has them, zero for padding. The hidden
states never leave the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from .graph_builder import GraphBuilder
from .segments import attention_penalty
from .sparse_graph import token_weights
from .sparse_head import SparseHead
from .weight_store import WeightStore
from .weights import Model

OPSET = 20
"""The first with `Gelu` as one operator; `LayerNormalization` is one since 17."""
IR_VERSION = 9
"""What ONNX 1.15 wrote with opset 20: every reader of the opset accepts it."""
PRODUCER = "duovec"
"""Tells our graphs from others."""
TOKEN_INPUTS = ("input_ids", "positions", "segments")
DENSE_NORM_FLOOR = 1e-12
"""Smallest divisor of the L2 normalization, so that a span without weights gives zeros, not NaN."""


def write(model: Model, head: SparseHead, path: Path) -> None:
    """The whole graph at `path`, and its large tensors beside it."""
    with closing(WeightStore(path)) as store:
        builder = GraphBuilder(model.config, store)
        penalty = attention_penalty(builder)
        hidden = encode(builder, model.tensors, _embeddings(builder, model), penalty)
        pool(builder, hidden)
        token_weights(builder, hidden, head)
    save(finish(builder), path)


def save(model: onnx.ModelProto, path: Path) -> None:
    """The same model gives the same bytes; the file is checked with what lies beside it."""
    path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path), full_check=True)


def _embeddings(builder: GraphBuilder, model: Model) -> str:
    """Word + position + type 0, normalized: f32 `[rows, length, hidden]`.

    The table is stored as f16 (Q4_0 holds less than that) because it is two thirds of the model;
    only the rows of the vocabulary are kept, the file pads them. Type 0 is folded into the
    positions.
    """
    rows = model.word_rows(slice(0, len(model.vocabulary.pieces))).astype(np.float16)
    words = builder.lookup(rows, "input_ids", "word")
    tensors = model.tensors
    places = builder.lookup(tensors["emb.pos"] + tensors["emb.type"][0], "positions", "position")
    total = builder.op("Add", [words, places], "embedding")
    return builder.layer_norm(total, "embedding.norm", tensors["emb.ln.w"], tensors["emb.ln.b"])


def encode(
    builder: GraphBuilder, tensors: Mapping[str, np.ndarray], hidden: str, penalty: str
) -> str:
    """All layers, `tensors` named as in the wheel: `[rows, length, hidden]` in and out."""
    builder.ints("heads.split", 0, 0, builder.config.heads, builder.config.head_size)
    builder.ints("heads.join", 0, 0, builder.config.hidden)
    for layer in range(builder.config.layers):
        hidden = _layer(builder, tensors, layer, hidden, penalty)
    return hidden


def _layer(
    builder: GraphBuilder, tensors: Mapping[str, np.ndarray], layer: int, hidden: str, penalty: str
) -> str:
    """One encoder layer: attention and feed-forward, each followed by add and norm."""

    def part(name: str) -> tuple[np.ndarray, np.ndarray]:
        return tensors[f"l{layer}.{name}.w"], tensors[f"l{layer}.{name}.b"]

    prefix = f"layer{layer}"
    context = _attention(builder, prefix, {key: part(key) for key in "qkv"}, hidden, penalty)
    attended = builder.linear(context, f"{prefix}.attention.out", *part("ao"))
    summed = builder.op("Add", [attended, hidden], f"{prefix}.attention.sum")
    normed = builder.layer_norm(summed, f"{prefix}.attention.norm", *part("aln"))
    wide = builder.linear(normed, f"{prefix}.ffn.in", *part("fi"))
    active = builder.op("Gelu", [wide], f"{prefix}.ffn.gelu", approximate="none")
    narrow = builder.linear(active, f"{prefix}.ffn.out", *part("fo"))
    summed = builder.op("Add", [narrow, normed], f"{prefix}.ffn.sum")
    return builder.layer_norm(summed, f"{prefix}.ffn.norm", *part("oln"))


def _attention(
    builder: GraphBuilder,
    prefix: str,
    parts: dict[str, tuple[np.ndarray, np.ndarray]],
    hidden: str,
    penalty: str,
) -> str:
    """softmax(q k^T + penalty) v: `[rows, length, hidden]`; 1/sqrt(head size) is inside Wq."""
    scale = np.float32(builder.config.head_size**-0.5)
    orders = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    weight, bias = parts["q"]
    scaled = parts | {"q": (weight * scale, bias * scale)}
    heads = {}
    for key, order in orders.items():
        name = f"{prefix}.{key}"
        flat = builder.projection(hidden, prefix, key, scaled)
        split = builder.op("Reshape", [flat, "heads.split"], f"{name}.split")
        heads[key] = builder.op("Transpose", [split], f"{name}.heads", perm=order)
    scores = builder.op("MatMul", [heads["q"], heads["k"]], f"{prefix}.scores")
    masked = builder.op("Add", [scores, penalty], f"{prefix}.scores.masked")
    shares = builder.op("Softmax", [masked], f"{prefix}.shares", axis=-1)
    mixed = builder.op("MatMul", [shares, heads["v"]], f"{prefix}.mixed")
    back = builder.op("Transpose", [mixed], f"{prefix}.mixed.back", perm=[0, 2, 1, 3])
    return builder.op("Reshape", [back, "heads.join"], f"{prefix}.context")


def pool(builder: GraphBuilder, hidden: str) -> str:
    """The output `dense`: a sum of hidden states for each span, L2-normalized; zeros stay zeros."""
    pooled = builder.op("MatMul", ["span_weights", hidden], "dense.pooled")
    axis = builder.ints("dense.axis", 2)
    norm = builder.op("ReduceL2", [pooled, axis], "dense.norm", keepdims=1)
    safe = builder.op(
        "Max", [norm, builder.floats("norm.floor", DENSE_NORM_FLOOR)], "dense.norm.floor"
    )
    return builder.op("Div", [pooled, safe], "dense")


def finish(builder: GraphBuilder) -> onnx.ModelProto:
    """The model around the collected nodes; `token_weights` is an output when a node makes it."""
    tokens = ["rows", "length"]
    dense_shape: list[str | int | None] = ["rows", "spans", builder.config.hidden]
    outputs = [helper.make_tensor_value_info("dense", TensorProto.FLOAT, dense_shape)]
    if any("token_weights" in node.output for node in builder.nodes):
        outputs.append(helper.make_tensor_value_info("token_weights", TensorProto.FLOAT, tokens))
    spans = ["rows", "spans", "length"]
    inputs = [
        *(helper.make_tensor_value_info(name, TensorProto.INT32, tokens) for name in TOKEN_INPUTS),
        helper.make_tensor_value_info("span_weights", TensorProto.FLOAT, spans),
    ]
    graph = helper.make_graph(builder.nodes, "encoder", inputs, outputs, builder.initializers)
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name=PRODUCER,
        ir_version=IR_VERSION,
    )
