"""Writes model.onnx of an encoder: inputs and outputs as in the default package.

`token_weights` is there only with a lexical head.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from default_package import graph as parts
from default_package.segments import attention_penalty
from default_package.sparse_graph import token_weights

from .choices import Precision
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
    penalty = attention_penalty(builder)
    hidden = _embeddings(builder, encoder)
    hidden = parts.encode(builder, encoder.tensors, hidden, penalty)
    parts.pool(builder, hidden)
    if encoder.head is not None:
        token_weights(builder, hidden, encoder.head)
    return parts.finish(builder)


def _embeddings(builder: SingleBuilder, encoder: Encoder) -> str:
    """Word + position + type 0, normalized: `[rows, length, hidden]`.

    Type 0, the only one a single text has, is folded into the positions. Of their table the rows
    before that of a text's first token are left out.
    """
    tensors = encoder.tensors
    words = _lookup(builder, "word", _word_table(builder, encoder), "input_ids")
    table = tensors["emb.pos"][encoder.architecture.first_position :] + tensors["emb.type"][0]
    table_name = builder.constant("position.table", table.astype(builder.table_type))
    places = _lookup(builder, "position", table_name, "positions")
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


def _lookup(builder: SingleBuilder, name: str, table: str, places: str) -> str:
    """f32 `[rows, length, hidden]` from a table in the builder's type."""
    found = builder.op("Gather", [table, places], f"{name}.stored")
    return builder.op("Cast", [found], name, to=TensorProto.FLOAT)
