"""Lexical weights of any words, as SPLADE has them: the head that guesses masked words gives each
word a logit at each place of a text, and the largest counts.

Outputs: `words`, int32 `[rows, spans, kept]`, the words of each span with the largest weights;
`word_weights`, f32 of this shape, zero for a word that has none. A span must be a whole text, and
what stands there for a span without weights means nothing.
"""

from onnx import TensorProto

from .encoder import Encoder
from .graph_builder import GraphBuilder
from .layers import Layers

WORDS, WEIGHTS = "words", "word_weights"
COLUMNS = 2048
"""Words that are scored at once. Logits of all words would be 62 MB for 512 tokens, and each step
towards the maxima would read them from memory and not from a cache."""


def write(builder: GraphBuilder, hidden: str, encoder: Encoder, layers: Layers) -> int:
    """Both outputs, of the last hidden states; returns how many words are kept."""
    architecture, sizes, tensor = encoder.architecture, encoder.sizes, encoder.tensor
    assert architecture.words is not None
    shape = builder.ints("words.shape", -1, sizes.hidden)
    tokens = builder.op("Reshape", [hidden, shape], "words.tokens")
    inner = builder.linear(tokens, "words.inner", tensor("mlm.w"), tensor("mlm.b"))
    active = layers.activated(inner, "words.inner")
    ready = layers.norm(active, "words.norm", "mlm.ln")
    earlier, ends = _places(builder, architecture.max_input_tokens)
    bias, parts = architecture.words.bias(tensor("words.b")), []
    for start in range(0, sizes.vocab_rows, COLUMNS):
        rows = slice(start, min(start + COLUMNS, sizes.vocab_rows))
        is_tied = architecture.words.is_tied
        weight = encoder.word_rows(rows) if is_tied else tensor("words.w")[rows]
        name = f"words.{len(parts)}"
        largest = builder.linear(ready, name, weight, bias[rows])
        for step, places in enumerate(earlier):
            before = builder.op("Gather", [largest, places], f"{name}.before{step}", axis=0)
            largest = builder.op("Max", [largest, before], f"{name}.largest{step}")
        parts.append(builder.op("Gather", [largest, ends], f"{name}.spans", axis=0))
    whole = parts[0]
    if parts[1:]:
        whole = builder.op("Concat", parts, "words.logits", axis=-1)
    kept = min(architecture.words.kept, sizes.vocab_rows)
    count = builder.ints("words.kept", kept)
    values = builder.op("TopK", [whole, count], "words.values", ["words.ids"], axis=-1)
    builder.op("Cast", ["words.ids"], WORDS, to=TensorProto.INT32)
    values, one = builder.op("Relu", [values], "words.positive"), builder.floats("words.one", 1.0)
    for number in reversed(range(architecture.words.logarithms)):
        above = builder.op("Add", [values, one], f"words.above{number}")
        values = builder.op("Log", [above], f"words.log{number}" if number else WEIGHTS)
    return kept


def _places(builder: GraphBuilder, tokens_max: int) -> tuple[list[str], str]:
    """Where maxima are read: for each step the place of an earlier token of the same text, int32
    `[rows * length]`; and the place of the last token of each span, int32 `[rows, spans]`.

    A step reaches twice as far as the one before it: behind all of them, the maximum of a text's
    last token is that of the text. A token without one so far in front of it stands for itself.
    """
    flat = builder.op("Reshape", ["positions", builder.ints("words.all", -1)], "words.positions")
    count = builder.op("Shape", [flat], "words.counts")
    count = builder.op("Squeeze", [count, builder.ints("words.first", 0)], "words.long_count")
    count = builder.op("Cast", [count], "words.count", to=TensorProto.INT32)
    zero, one = (builder.integer(f"words.whole{value}", value) for value in (0, 1))
    places = builder.op("Range", [zero, count, one], "words.places")
    earlier = []
    while (reach := 1 << len(earlier)) < tokens_max:
        step = f"words.step{len(earlier)}"
        distance = builder.integer(step, reach)
        is_there = builder.op("GreaterOrEqual", [flat, distance], f"{step}.is_there")
        back = builder.op("Where", [is_there, distance, zero], f"{step}.back")
        earlier.append(builder.op("Sub", [places, back], f"{step}.places"))
    batch = builder.op("Shape", ["positions"], "words.batch")
    table = builder.op("Reshape", [places, batch], "words.table")
    beside = builder.op("Unsqueeze", [table, builder.ints("words.beside", 1)], "words.of_spans")
    counts = builder.op("Cast", ["span_weights"], "words.counted", to=TensorProto.BOOL)
    own = builder.op("Where", [counts, beside, zero], "words.own")
    last = builder.ints("words.last", 2)
    return earlier, builder.op("ReduceMax", [own, last], "words.ends", keepdims=0)
