"""Writes model.onnx: a post-layer-norm BERT encoder with a dense and a sparse output.

A row has several texts, of which none sees another. Inputs, int32 `[rows, length]`: `input_ids`;
`positions`, of a token in its own text, from 0; `segments`, which text of the row a token belongs
to, from 0, and -1 for padding. `span_weights`, f32 `[rows, spans, length]`, says how much each
token counts in each span, of which each gives a dense vector.

Outputs: `dense`, f32 `[rows, spans, hidden]`, L2-normalized, zeros for a span without weights;
`token_weights`, f32 `[rows, length]`, as `SparseHead` has them, zero for padding; `token_vectors`,
f32 `[rows, length, width]`, L2-normalized, of any content for padding. A model has the last two if
it has their heads, and those of the module `words` if it has that one. The hidden states never
leave the graph.
"""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, ValueInfoProto, helper

from . import words
from .encoder import Encoder
from .graph_builder import GraphBuilder, WeightStore
from .layers import Layers
from .segments import second_texts, token_weights

OPSET = 20
"""The first with `Gelu` as one operator; `LayerNormalization` is one since 17."""
IR_VERSION = 9
"""What ONNX 1.15 wrote with opset 20: every reader of the opset accepts it."""
PRODUCER = "duovec"
"""Tells our graphs from others."""
TABLE_ROWS = 1 << 14
"""Rows of the word table that are read at once."""
NORM_FLOOR = 1e-12
"""Smallest divisor of the L2 normalization, so that a span without weights gives zeros, not NaN."""
WIDTH_AXIS, FLOOR = "dense.axis", "norm.floor"
"""Names of numbers that each normalization needs."""
TOKENS = "tokens"
"""What the head for token vectors gives; normalized, it is an output."""


def write(encoder: Encoder, path: Path) -> None:
    """The whole graph at `path`, its large tensors beside it.

    One of them is in memory at a time, besides what goes into `path` itself.
    """
    architecture = encoder.architecture
    tokens, spans = ["rows", "length"], ["rows", "spans"]
    outputs = [_floats("dense", *spans, architecture.width)]
    with closing(WeightStore(path)) as store:
        builder = GraphBuilder(store)
        layers = Layers(builder, encoder)
        hidden = layers.write(_embeddings(builder, encoder, layers))
        _pool(builder, hidden, encoder, layers)
        if encoder.head is not None:
            token_weights(builder, hidden, encoder.head)
            outputs.append(_floats("token_weights", *tokens))
        if width := architecture.token_width:
            numbers = [encoder.tensor(f"tok.{part}") for part in "wb"]
            _normalized(builder, builder.linear(hidden, TOKENS, *numbers), "token_vectors")
            outputs.append(_floats("token_vectors", *tokens, width))
        if architecture.words:
            kept = words.write(builder, hidden, encoder, layers)
            ids = helper.make_tensor_value_info(words.WORDS, TensorProto.INT32, [*spans, kept])
            outputs += [ids, _floats(words.WEIGHTS, *spans, kept)]
    whole_numbers = ("input_ids", "positions", "segments")
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT32, tokens) for n in whole_numbers]
    save(builder, [*inputs, _floats("span_weights", *spans, "length")], outputs, path)


def _floats(name: str, *shape: str | int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def save(
    builder: GraphBuilder,
    inputs: Iterable[ValueInfoProto],
    outputs: Iterable[ValueInfoProto],
    path: Path,
) -> None:
    """The model around the collected nodes; the file is checked with what lies beside it."""
    graph = helper.make_graph(builder.nodes, "encoder", inputs, outputs, builder.initializers)
    opsets = [helper.make_opsetid("", OPSET)]
    about = {"producer_name": PRODUCER, "ir_version": IR_VERSION}
    model = helper.make_model(graph, opset_imports=opsets, **about)
    # The same model gives the same bytes.
    path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path), full_check=True)


def _embeddings(builder: GraphBuilder, encoder: Encoder, layers: Layers) -> str:
    """Word + position + type, normalized: f32 `[rows, length, hidden]`.

    Type 0, the only one a single text has, is folded into the positions if the model has types. Of
    their table the rows before that of a text's first token are left out.
    """
    total = builder.lookup(_word_table(encoder), "input_ids", "word")
    tensor, family = encoder.tensor, encoder.architecture.family
    added = tensor("emb.type")[0] if family.has("emb.type") and encoder.sizes.type_rows else None
    if family.has("emb.pos"):
        table = tensor("emb.pos")[encoder.architecture.first_position :]
        places = builder.lookup(table if added is None else table + added, "positions", "position")
        total = builder.op("Add", [total, places], "embedding")
    elif family.scaled_words:
        scale = builder.floats("word.scale", encoder.sizes.hidden**0.5)
        total = builder.op("Mul", [total, scale], "embedding")
    elif added is not None:
        total = builder.op("Add", [total, builder.floats("type", added)], "embedding")
    if encoder.architecture.separator is not None:
        is_second = second_texts(builder, encoder.architecture.separator)
        first, second = tensor("emb.type")[:2]
        change = builder.floats("pair.change", second - first)
        added = builder.op("Mul", [is_second, change], "pair.types")
        total = builder.op("Add", [total, added], "pair.embedding")
    return layers.norm(total, "embedding.norm", "emb.ln")


def _word_table(encoder: Encoder) -> np.ndarray:
    """f16 `[vocab_rows, hidden]`, converted in parts so that no second copy in f32 is held.

    It is f16 in graphs of all precisions: a table is only read, f32 would double the package, bf16
    keeps three bits fewer, and the default package's Q4_0 holds less than f16 does.
    """
    count = encoder.sizes.vocab_rows
    table = np.empty((count, encoder.sizes.hidden), np.float16)
    with np.errstate(over="ignore"):
        for start in range(0, count, TABLE_ROWS):
            rows = slice(start, min(start + TABLE_ROWS, count))
            table[rows] = encoder.word_rows(rows)
    return table


def _pool(builder: GraphBuilder, hidden: str, encoder: Encoder, layers: Layers) -> str:
    """The output `dense`: a sum of hidden states for each span, L2-normalized; zeros stay zeros."""
    pooled = builder.op("MatMul", ["span_weights", hidden], "dense.pooled")
    for number, module in enumerate(encoder.architecture.dense):
        name, tensor = f"dense.{number}", f"dense{number}"
        pooled = builder.linear(pooled, name, encoder.tensor(f"{tensor}.w"), None)
        if module.biased:
            # A span's weights add up to one, so that one without weights gets no bias.
            length = builder.ints(f"{name}.axis", 2)
            total = builder.op("ReduceSum", ["span_weights", length], f"{name}.total")
            bias = builder.floats(f"{name}.bias", encoder.tensor(f"{tensor}.b"))
            shift = builder.op("Mul", [total, bias], f"{name}.shift")
            pooled = builder.op("Add", [pooled, shift], f"{name}.shifted")
        if module.activation:
            kind = module.activation.title()
            pooled = builder.op(kind, [pooled], f"{name}.{module.activation}")
        pooled = layers.norm(pooled, f"{name}.norm", f"{tensor}.ln")
    builder.ints(WIDTH_AXIS, 2)
    builder.floats(FLOOR, NORM_FLOOR)
    return _normalized(builder, pooled, "dense")


def _normalized(builder: GraphBuilder, source: str, output: str) -> str:
    """Each vector of `source` `[rows, any, width]`, divided by its length."""
    norm = builder.op("ReduceL2", [source, WIDTH_AXIS], f"{output}.norm", keepdims=1)
    safe = builder.op("Max", [norm, FLOOR], f"{output}.norm.floor")
    return builder.op("Div", [source, safe], output)
