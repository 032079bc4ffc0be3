"""Writes model.onnx: an encoder with a dense vector, and lexical weights, of each text.

A row has several texts, of which none sees another. Inputs, int32 `[rows, length]`: `input_ids`;
`positions`, of a token in its own text, from 0; `segments`, which text of the row a token belongs
to, from 0, and -1 for padding. `span_weights`, f32 `[rows, spans, length]`, says how much each
token counts in each span, of which each gives a dense vector.

Outputs: `dense`, f32 `[rows, spans, hidden]`, L2-normalized, zeros for a span without weights;
`token_weights`, f32 `[rows, length]`, as `SparseHead` has them, zero for padding; `token_vectors`,
f32 `[rows, length, width]`, L2-normalized, of any content for padding; `words`, int32 `[rows,
spans, kept]`, the words of each span with the largest weights, and `word_weights`, f32 of this
shape, zero for a word that has none. A span of words must be a whole text, and what stands there
for a span without weights means nothing. A model has the outputs that it has heads for. The hidden
states never leave the graph.
"""

from pathlib import Path

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from .encoder import NORM_FLOOR, Encoder, SparseHead
from .layers import COLUMN_AXES, SAME_TEXT, ZERO, Layers

TABLE_ROWS = 1 << 14  # rows of the word table that are read at once
LENGTH_FLOOR = 1e-12
"""Smallest divisor of the L2 normalization, so that a span without weights gives zeros, not NaN."""
TOKENS = "tokens"  # what the head for token vectors gives; normalized, it is an output
WORDS, WEIGHTS = "words", "word_weights"
COLUMNS = 2048
"""Words that are scored at once. Logits of all words would be 62 MB for 512 tokens, and each step
towards the maxima would read them from memory and not from a cache."""


def write(encoder: Encoder, path: Path) -> None:
    """The whole graph at `path`, its large tensors beside it. One of them is in memory at a time,
    besides what goes into `path` itself."""
    architecture = encoder.architecture
    tokens, spans = ["rows", "length"], ["rows", "spans"]
    outputs = [_floats("dense", *spans, architecture.width)]
    layers = Layers(path, encoder)
    hidden = layers.write(_embeddings(layers))
    _pool(layers, hidden)
    if encoder.head is not None:
        _weigh_tokens(layers, hidden, encoder.head)
        outputs.append(_floats("token_weights", *tokens))
    if width := architecture.token_width:
        found = layers.linear(hidden, TOKENS, *layers.numbers("tok"))
        _normalize(layers, found, "token_vectors")
        outputs.append(_floats("token_vectors", *tokens, width))
    if architecture.words:
        kept = _weigh_words(layers, hidden)
        outputs.append(helper.make_tensor_value_info(WORDS, TensorProto.INT32, [*spans, kept]))
        outputs.append(_floats(WEIGHTS, *spans, kept))
    whole_numbers = ("input_ids", "positions", "segments")
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT32, tokens) for n in whole_numbers]
    layers.save([*inputs, _floats("span_weights", *spans, "length")], outputs)


def _floats(name: str, *shape: str | int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _embeddings(g: Layers) -> str:
    """Word + position + type, normalized: f32 `[rows, length, hidden]`. Type 0, the only one a
    single text has, is folded into the positions if the model has types. Of their table the rows
    before that of a text's first token are left out."""
    count, tensor, family = g.sizes.vocab_rows, g.encoder.tensor, g.family
    # In f16 in graphs of all precisions: a table is only read, f32 would double the package, bf16
    # keeps three bits fewer, and the default package's Q4_0 holds less than f16 does. It is
    # converted in parts so that no second copy in f32 is held.
    table = np.empty((count, g.sizes.hidden), np.float16)
    with np.errstate(over="ignore"):
        for start in range(0, count, TABLE_ROWS):
            rows = slice(start, min(start + TABLE_ROWS, count))
            table[rows] = g.encoder.read("emb.word", rows)
    total = g.lookup(table, "input_ids", "word")
    added = tensor("emb.type")[0] if family.has("emb.type") and g.sizes.type_rows else None
    if family.has("emb.pos"):
        table = tensor("emb.pos")[g.architecture.first_position :]
        places = g.lookup(table if added is None else table + added, "positions", "position")
        total = g.op("Add", [total, places], "embedding")
    elif family.scaled_words:
        total = g.op("Mul", [total, ("word.scale", g.sizes.hidden**0.5)], "embedding")
    elif added is not None:
        total = g.op("Add", [total, ("type", added)], "embedding")
    if g.architecture.separator is not None:
        first, second = tensor("emb.type")[:2]
        change = [_second_texts(g, g.architecture.separator), ("pair.change", second - first)]
        total = g.op("Add", [total, g.op("Mul", change, "pair.types")], "pair.embedding")
    return g.norm(total, "embedding.norm", "emb.ln")


def _second_texts(g: Layers, separator: int) -> str:
    """1 for the tokens of a pair behind its first separator, else 0: f32 `[rows, length, 1]`."""
    found = g.op("Equal", ["input_ids", ("pair.separator", separator)], "pair.separators")
    before = g.op("LessOrEqual", [g.distance_of_pairs(), ("pair.last", -1)], "pair.before")
    own = g.op("And", [SAME_TEXT, g.as_row(found)], "pair.own")
    seen = g.op("And", [own, before], "pair.seen")
    numbers = g.op("Cast", [seen], "pair.numbers", to=TensorProto.FLOAT)
    count = g.op("ReduceSum", [numbers, COLUMN_AXES], "pair.count", keepdims=0)
    second = g.op("Min", [count, ("pair.most", 1.0)], "pair.second")
    return g.op("Unsqueeze", [second, ("pair.axis", [2])], "pair.is_second")


def _pool(g: Layers, hidden: str) -> None:
    """The output `dense`: a sum of hidden states for each span, L2-normalized; zeros stay zeros."""
    pooled = g.op("MatMul", ["span_weights", hidden], "dense.pooled")
    for number, module in enumerate(g.architecture.dense):
        name, tensor = f"dense.{number}", f"dense{number}"
        weight, bias = g.numbers(tensor)
        pooled = g.linear(pooled, name, weight, None)
        if bias is not None:
            # A span's weights add up to one, so that one without weights gets no bias.
            length = ["span_weights", (f"{name}.axis", [2])]
            total = g.op("ReduceSum", length, f"{name}.total")
            shift = g.op("Mul", [total, (f"{name}.bias", bias)], f"{name}.shift")
            pooled = g.op("Add", [pooled, shift], f"{name}.shifted")
        if kind := module.activation:
            pooled = g.op(kind.title(), [pooled], f"{name}.{kind}")
        pooled = g.norm(pooled, f"{name}.norm", f"{tensor}.ln")
    _normalize(g, pooled, "dense")


def _normalize(g: Layers, source: str, output: str) -> None:
    """Each vector of `source` `[rows, any, width]`, divided by its length."""
    norm = g.op("ReduceL2", [source, ("dense.axis", [2])], f"{output}.norm", keepdims=1)
    safe = g.op("Max", [norm, ("norm.floor", LENGTH_FLOOR)], f"{output}.norm.floor")
    g.op("Div", [source, safe], output)


def _weigh_tokens(g: Layers, hidden: str, head: SparseHead) -> None:
    """relu(linear(hidden)) for each position, zero for padding: f32 `[rows, length]`. With an
    exponent the weights of a text are divided by their norm."""
    weight = np.asarray(head.weights, np.float32).reshape(1, -1)
    if head.piece_biases is None:
        logits = g.linear(hidden, "sparse", weight, np.asarray([head.bias], np.float32))
    else:
        product = g.op("MatMul", [hidden, ("sparse.weight", weight.T)], "sparse.product")
        table = ("sparse.pieces", head.piece_biases.reshape(-1, 1))
        bias = g.op("Gather", [table, "input_ids"], "sparse.bias")
        logits = g.op("Add", [product, bias], "sparse")
    flat = g.op("Squeeze", [logits, ("sparse.axis", [2])], "sparse.flat")
    if head.repeat_weight:
        # Plus weight · log(how often the position's text has its id).
        name = "sparse.repeats"
        equal = g.op("Equal", [g.as_column("input_ids"), g.as_row("input_ids")], f"{name}.ids")
        same = g.op("And", [equal, SAME_TEXT], f"{name}.same")
        numbers = g.op("Cast", [same], f"{name}.numbers", to=TensorProto.FLOAT)
        count = g.op("ReduceSum", [numbers, COLUMN_AXES], f"{name}.count", keepdims=0)
        logarithm = g.op("Log", [count], f"{name}.log")
        scaled = g.op("Mul", [logarithm, (f"{name}.weight", float(head.repeat_weight))], name)
        flat = g.op("Add", [flat, scaled], "sparse.repeated")
    positive = g.op("Relu", [flat], "sparse.positive")
    real = g.op("GreaterOrEqual", ["segments", ("sparse.first", 0)], "sparse.real")
    output = "sparse.kept" if head.norm_exponent else "token_weights"
    kept = g.op("Where", [real, positive, ZERO], output)
    if not head.norm_exponent:
        return
    # The norm of the position's text is a choice and a sum, no product of matrices: OpenVINO rounds
    # to bf16 what goes into those.
    own = g.op("Where", [SAME_TEXT, g.as_row(kept), ZERO], "sparse.norm.own")
    norm = g.op("ReduceL2", [own, COLUMN_AXES], "sparse.norm", keepdims=0)
    safe = g.op("Max", [norm, ("sparse.norm.least", NORM_FLOOR)], "sparse.norm.floor")
    power = ("sparse.norm.exponent", float(head.norm_exponent))
    g.op("Div", [kept, g.op("Pow", [safe, power], "sparse.norm.power")], "token_weights")


def _weigh_words(g: Layers, hidden: str) -> int:
    """Lexical weights of any words, as SPLADE has them: the head that guesses masked words gives
    each word a logit at each place of a text, and the largest counts. Returns how many are kept."""
    words, sizes, tensor = g.architecture.words, g.sizes, g.encoder.tensor
    assert words is not None
    tokens = g.op("Reshape", [hidden, ("words.shape", [-1, sizes.hidden])], "words.tokens")
    inner = g.linear(tokens, "words.inner", *g.numbers("mlm"))
    ready = g.norm(g.activated(inner, "words.inner"), "words.norm", "mlm.ln")
    earlier, ends = _places(g)
    bias, parts = words.bias(tensor("words.b")), []
    for start in range(0, sizes.vocab_rows, COLUMNS):
        rows = slice(start, min(start + COLUMNS, sizes.vocab_rows))
        weight = g.encoder.read("emb.word" if words.is_tied else "words.w", rows)
        name = f"words.{len(parts)}"
        largest = g.linear(ready, name, weight, bias[rows])
        for step, places in enumerate(earlier):
            before = g.op("Gather", [largest, places], f"{name}.before{step}", axis=0)
            largest = g.op("Max", [largest, before], f"{name}.largest{step}")
        parts.append(g.op("Gather", [largest, ends], f"{name}.spans", axis=0))
    whole = g.op("Concat", parts, "words.logits", axis=-1) if parts[1:] else parts[0]
    kept = min(words.kept, sizes.vocab_rows)
    values = g.op("TopK", [whole, ("words.kept", [kept])], "words.values", ["words.ids"], axis=-1)
    g.op("Cast", ["words.ids"], WORDS, to=TensorProto.INT32)
    values, one = g.op("Relu", [values], "words.positive"), g.floats("words.one", 1.0)
    for number in reversed(range(words.logarithms)):
        above = g.op("Add", [values, one], f"words.above{number}")
        values = g.op("Log", [above], f"words.log{number}" if number else WEIGHTS)
    return kept


def _places(g: Layers) -> tuple[list[str], str]:
    """Where maxima are read: for each step the place of an earlier token of the same text, int32
    `[rows * length]`; and the place of the last token of each span, int32 `[rows, spans]`. A step
    reaches twice as far as the one before it: behind all of them, the maximum of a text's last
    token is that of the text. A token without one so far in front of it stands for itself."""
    flat = g.op("Reshape", ["positions", ("words.all", [-1])], "words.positions")
    count = g.op("Shape", [flat], "words.counts")
    count = g.op("Squeeze", [count, ("words.first", [0])], "words.long_count")
    count = g.op("Cast", [count], "words.count", to=TensorProto.INT32)
    zero, one = (g.number(f"words.whole{value}", value) for value in (0, 1))
    places, earlier = g.op("Range", [zero, count, one], "words.places"), []
    while (reach := 1 << len(earlier)) < g.architecture.max_input_tokens:
        step = f"words.step{len(earlier)}"
        distance = g.number(step, reach)
        is_there = g.op("GreaterOrEqual", [flat, distance], f"{step}.is_there")
        back = g.op("Where", [is_there, distance, zero], f"{step}.back")
        earlier.append(g.op("Sub", [places, back], f"{step}.places"))
    batch = g.op("Shape", ["positions"], "words.batch")
    table = g.op("Reshape", [places, batch], "words.table")
    beside = g.op("Unsqueeze", [table, ("words.beside", [1])], "words.of_spans")
    counts = g.op("Cast", ["span_weights"], "words.counted", to=TensorProto.BOOL)
    own = g.op("Where", [counts, beside, zero], "words.own")
    return earlier, g.op("ReduceMax", [own, ("words.last", [2])], "words.ends", keepdims=0)
