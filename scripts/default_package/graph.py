"""Writes model.onnx: a post-layer-norm BERT encoder with a dense and a sparse output.

A row has several texts, of which none sees another. Inputs, int32 `[rows, length]`: `input_ids`;
`positions`, of a token in its own text, from 0; `segments`, which text of the row a token belongs
to, from 0, and -1 for padding. `span_weights`, f32 `[rows, spans, length]`, says how much each
token counts in each span, of which each gives a dense vector.

Outputs: `dense`, f32 `[rows, spans, hidden]`, L2-normalized, zeros for a span without weights;
`token_weights`, f32 `[rows, length]`, as `sparse_head` has them, zero for padding; `token_vectors`,
f32 `[rows, length, width]`, L2-normalized, of any content for padding. A model has the last two if
it has their heads, and those of the module `words` if it has that one. The hidden states never
leave the graph.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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
TOKEN_INPUTS = ("input_ids", "positions", "segments")
TABLE_ROWS = 1 << 14
"""Rows of the word table that are read at once."""
NORM_FLOOR = 1e-12
"""Smallest divisor of the L2 normalization, so that a span without weights gives zeros, not NaN."""
WIDTH_AXIS, FLOOR = "dense.axis", "norm.floor"
"""Names of numbers that each normalization needs."""
TOKENS, TOKEN_VECTORS = "tokens", "token_vectors"
"""What the head for token vectors gives, and the output that it becomes."""


def write(
    encoder: Encoder, path: Path, make: Callable[[WeightStore], GraphBuilder] = GraphBuilder
) -> None:
    """The whole graph at `path` as the builder of `make` writes it, its large tensors beside it.

    One of them is in memory at a time, besides what goes into `path` itself.
    """
    with closing(WeightStore(path)) as store:
        builder = make(store)
        layers = Layers(builder, encoder)
        hidden = layers.write(_embeddings(builder, encoder, layers))
        _pool(builder, hidden, encoder, layers)
        if encoder.head is not None:
            token_weights(builder, hidden, encoder.head)
        if encoder.architecture.token_width:
            numbers = [encoder.source.tensor(f"tok.{part}") for part in "wb"]
            _normalized(builder, builder.linear(hidden, TOKENS, *numbers), TOKEN_VECTORS)
        if encoder.architecture.words:
            words.write(builder, hidden, encoder, layers)
    save(finish(builder, encoder.architecture.width), path)


def save(model: onnx.ModelProto, path: Path) -> None:
    """The same model gives the same bytes; the file is checked with what lies beside it."""
    path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path), full_check=True)


def _embeddings(builder: GraphBuilder, encoder: Encoder, layers: Layers) -> str:
    """Word + position + type, normalized: f32 `[rows, length, hidden]`.

    Type 0, the only one a single text has, is folded into the positions if the family has types. Of
    their table the rows before that of a text's first token are left out.
    """
    total = builder.lookup(_word_table(encoder), "input_ids", "word")
    tensor, family = encoder.source.tensor, encoder.architecture.family
    added = tensor("emb.type")[0] if family.has("emb.type") else None
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
            table[rows] = encoder.source.word_rows(rows)
    return table


def _pool(builder: GraphBuilder, hidden: str, encoder: Encoder, layers: Layers) -> str:
    """The output `dense`: a sum of hidden states for each span, L2-normalized; zeros stay zeros."""
    pooled = builder.op("MatMul", ["span_weights", hidden], "dense.pooled")
    for number, module in enumerate(encoder.architecture.dense):
        name, tensor = f"dense.{number}", f"dense{number}"
        pooled = builder.linear(pooled, name, encoder.source.tensor(f"{tensor}.w"), None)
        if module.biased:
            # A span's weights add up to one, so that one without weights gets no bias.
            length = builder.ints(f"{name}.axis", 2)
            total = builder.op("ReduceSum", ["span_weights", length], f"{name}.total")
            bias = builder.floats(f"{name}.bias", encoder.source.tensor(f"{tensor}.b"))
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


def finish(builder: GraphBuilder, width: int) -> onnx.ModelProto:
    """The model around the collected nodes; what nodes make for tokens are outputs too."""
    tokens = ["rows", "length"]
    dense_shape: list[str | int | None] = ["rows", "spans", width]
    outputs = [helper.make_tensor_value_info("dense", TensorProto.FLOAT, dense_shape)]
    if any("token_weights" in node.output for node in builder.nodes):
        outputs.append(helper.make_tensor_value_info("token_weights", TensorProto.FLOAT, tokens))
    for weight in builder.initializers:
        if weight.name == f"{TOKENS}.weight":
            shape = [*tokens, weight.dims[1]]
            outputs.append(helper.make_tensor_value_info(TOKEN_VECTORS, TensorProto.FLOAT, shape))
        if weight.name == "words.kept":
            shape = ["rows", "spans", int(numpy_helper.to_array(weight)[0])]
            for name, kind in (words.WORDS, TensorProto.INT32), (words.WEIGHTS, TensorProto.FLOAT):
                outputs.append(helper.make_tensor_value_info(name, kind, shape))
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
