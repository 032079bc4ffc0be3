"""Writes model.onnx of an encoder: inputs and outputs as in the default package.

Inputs `input_ids`, `attention_mask`: int32 `[batch, length]`. Outputs `dense`: f32
`[batch, hidden]`, pooled and L2-normalized; `token_weights`: f32 `[batch, length]`, only with a
lexical head. A row of padding gives zeros.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from default_package import graph as parts
from default_package.sparse_graph import token_weights

from .choices import Family, Pooling, Precision
from .encoder import Encoder, tensor_shapes
from .half import SingleBuilder, make_builder
from .weight_store import EXTERNAL_BYTES_MIN, open_store

TABLE_ROWS = 1 << 14
"""Rows of the word table that are read at once."""


def weight_count(encoder: Encoder) -> int:
    """Numbers of a whole model."""
    sizes = encoder.config
    return sizes.vocab_rows * sizes.hidden + sum(map(math.prod, tensor_shapes(sizes).values()))


def write(
    encoder: Encoder,
    precision: Precision,
    path: Path,
    external_bytes_min: int = EXTERNAL_BYTES_MIN,
) -> None:
    """Writes the graph to `path`, and its numbers beside it when they are many.

    One tensor is in memory at a time, besides what goes into `path` itself.
    """
    store = open_store(path, weight_count(encoder) * precision.bytes, external_bytes_min)
    try:
        model = _build(encoder, make_builder(precision, encoder.config, store))
    finally:
        store.close()
    save(model, path)


def save(model: onnx.ModelProto, path: Path) -> None:
    """The same model gives the same bytes; the file is checked with what lies beside it."""
    path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path), full_check=True)


def _build(encoder: Encoder, builder: SingleBuilder) -> onnx.ModelProto:
    mask = builder.op("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    penalty = parts.attention_penalty(builder, mask)
    hidden = _embeddings(builder, encoder)
    hidden = parts.encode(builder, encoder.tensors, hidden, penalty)
    axis = builder.ints("dense.axis", 1)
    if encoder.architecture.pooling is Pooling.MEAN:
        pooled = parts.mean_pool(builder, hidden, mask, axis)
    else:
        pooled = _first_position(builder, hidden, mask, axis)
    parts.normalize(builder, pooled, axis)
    if encoder.head is not None:
        token_weights(builder, hidden, mask, encoder.head)
    return parts.finish(builder)


def _embeddings(builder: SingleBuilder, encoder: Encoder) -> str:
    """Word + position + type 0, normalized: `[batch, length, hidden]`.

    Type 0, the only one a single text has, is folded into the positions.
    """
    tensors = encoder.tensors
    words = _lookup(builder, "word", _word_table(builder, encoder), "input_ids")
    table = tensors["emb.pos"] + tensors["emb.type"][0]
    table_name = builder.constant("position.table", table.astype(builder.table_type))
    if encoder.architecture.family is Family.BERT:
        places = _first_rows(builder, table_name)
    else:
        rows = _counted_positions(builder, encoder.architecture.pad_token_id)
        places = _lookup(builder, "position", table_name, rows)
    total = builder.op("Add", [words, places], "embedding")
    return builder.layer_norm(total, "embedding.norm", tensors["emb.ln.w"], tensors["emb.ln.b"])


def _word_table(builder: SingleBuilder, encoder: Encoder) -> str:
    """`[vocab_rows, hidden]`, converted in parts so that no second copy in f32 is held."""
    sizes = encoder.config
    table = np.empty((sizes.vocab_rows, sizes.hidden), builder.table_type)
    with np.errstate(over="ignore"):
        for start in range(0, sizes.vocab_rows, TABLE_ROWS):
            rows = slice(start, min(start + TABLE_ROWS, sizes.vocab_rows))
            table[rows] = encoder.word_rows(rows)
    return builder.constant("word.table", table)


def _lookup(builder: SingleBuilder, name: str, table: str, rows: str) -> str:
    """f32 `[batch, length, hidden]` from a table in the builder's type."""
    found = builder.op("Gather", [table, rows], f"{name}.stored")
    return builder.op("Cast", [found], name, to=TensorProto.FLOAT)


def _first_rows(builder: SingleBuilder, table: str) -> str:
    """The head of the table, as long as the input: f32 `[length, hidden]`."""
    length = builder.op("Shape", ["input_ids"], "length", start=1, end=2)
    bounds = [builder.ints("zero", 0), length, builder.ints("position.axes", 0)]
    found = builder.op("Slice", [table, *bounds], "position.stored")
    return builder.op("Cast", [found], "position", to=TensorProto.FLOAT)


def _counted_positions(builder: SingleBuilder, pad_token_id: int) -> str:
    """int32 `[batch, length]`: pad + 1, pad + 2, … over what the mask keeps, pad elsewhere.

    As `create_position_ids_from_input_ids` of the transformers library counts, with the mask in
    the place of the comparison to the padding id.
    """
    axis = builder.constant("position.axis", np.asarray(1, np.int32))
    count = builder.op("CumSum", ["attention_mask", axis], "position.count")
    kept = builder.op("Mul", [count, "attention_mask"], "position.kept")
    offset = builder.constant("position.offset", np.asarray([pad_token_id], np.int32))
    return builder.op("Add", [kept, offset], "position.rows")


def _first_position(builder: SingleBuilder, hidden: str, mask: str, axis: str) -> str:
    """f32 `[batch, hidden]`: the hidden state of `<s>`, zeros for a row of padding."""
    first = builder.constant("cls.position", np.asarray(0, np.int64))
    state = builder.op("Gather", [hidden, first], "cls.state", axis=1)
    bounds = [builder.ints("cls.start", 0), builder.ints("cls.end", 1), axis]
    kept = builder.op("Slice", [mask, *bounds], "cls.mask")
    return builder.op("Mul", [state, kept], "cls")
