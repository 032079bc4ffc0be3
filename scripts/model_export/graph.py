"""Writes model.onnx of an encoder: inputs and outputs as in the default package.

`token_weights` is there only with a lexical head.
"""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path

import numpy as np

from default_package import graph as parts
from default_package.graph_builder import GraphBuilder
from default_package.segments import attention_penalty
from default_package.sparse_graph import token_weights
from default_package.weight_store import WeightStore

from .choices import Precision
from .encoder import Encoder, tensor_shapes
from .half import make_builder

TABLE_ROWS = 1 << 14
"""Rows of the word table that are read at once."""


def weight_count(encoder: Encoder) -> int:
    """Numbers of a whole model."""
    sizes = encoder.config
    return sizes.vocab_rows * sizes.hidden + sum(map(math.prod, tensor_shapes(sizes).values()))


def write(encoder: Encoder, precision: Precision, path: Path) -> None:
    """Writes the graph to `path`, and its large tensors beside it.

    One of them is in memory at a time, besides what goes into `path` itself.
    """
    with closing(WeightStore(path)) as store:
        builder = make_builder(precision, encoder.config, store)
        penalty = attention_penalty(builder)
        hidden = _embeddings(builder, encoder)
        hidden = parts.encode(builder, encoder.tensors, hidden, penalty)
        parts.pool(builder, hidden)
        if encoder.head is not None:
            token_weights(builder, hidden, encoder.head)
    parts.save(parts.finish(builder), path)


def _embeddings(builder: GraphBuilder, encoder: Encoder) -> str:
    """Word + position + type 0, normalized: `[rows, length, hidden]`.

    Type 0, the only one a single text has, is folded into the positions. Of their table the rows
    before that of a text's first token are left out.
    """
    tensors = encoder.tensors
    words = builder.lookup(_word_table(encoder), "input_ids", "word")
    table = tensors["emb.pos"][encoder.architecture.first_position :] + tensors["emb.type"][0]
    places = builder.lookup(table, "positions", "position")
    total = builder.op("Add", [words, places], "embedding")
    return builder.layer_norm(total, "embedding.norm", tensors["emb.ln.w"], tensors["emb.ln.b"])


def _word_table(encoder: Encoder) -> np.ndarray:
    """f16 `[vocab_rows, hidden]`, converted in parts so that no second copy in f32 is held.

    It is f16 in graphs of all precisions: a table is only read, f32 would double the package, and
    bf16 keeps three bits fewer.
    """
    sizes = encoder.config
    table = np.empty((sizes.vocab_rows, sizes.hidden), np.float16)
    with np.errstate(over="ignore"):
        for start in range(0, sizes.vocab_rows, TABLE_ROWS):
            rows = slice(start, min(start + TABLE_ROWS, sizes.vocab_rows))
            table[rows] = encoder.word_rows(rows)
    return table
