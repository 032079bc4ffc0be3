"""What a network is, wherever its weights come from: sizes, tensors by name, lexical head."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from families import Family

from .choices import Pooling

Rows = slice | EllipsisType  # of a tensor
WORD_TABLE = "emb.word"
RELATIVE_BUCKETS = 32
RELATIVE_REACH = 128  # distance from which all are in the last bucket
NORM_FLOOR = 1e-6
"""Smallest norm of lexical weights, so that a text without weights gives zeros, not NaN."""
SPECIAL_BIAS = -10_000.0
"""Of words without weights: their weight is zero, and the number is finite in every precision."""


@dataclass(frozen=True)
class Config:
    """Sizes of a network."""

    hidden: int
    layers: int
    heads: int
    ffn: int
    vocab_rows: int
    positions: int
    type_rows: int
    layer_norm_epsilon: float
    key_heads: int | None = None  # heads of keys and of values, where several heads share one
    head_width: int | None = None  # where all heads together are not as wide as hidden states

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.head_width or self.hidden // self.heads


@dataclass(frozen=True)
class Rotary:
    """How queries and keys turn with their position, two numbers of a head together."""

    theta: float  # the angle of pair i and position p is p / theta^(i / pairs)
    divisor: float = 1.0  # of all angles

    def angles(self, positions: int, width: int) -> np.ndarray:
        """f64 `[positions, width / 2]` for heads of this width."""
        speeds = self.theta ** -(np.arange(width // 2) / (width // 2)) / self.divisor
        return np.arange(positions)[:, None] * speeds


@dataclass(frozen=True)
class Attention:
    """What differs between the attentions of one network's layers."""

    rotary: Rotary | None = None
    window: int | None = None  # the largest distance of what a token sees, if not all of its text


@dataclass(frozen=True)
class Dense:
    """A product behind the pooling."""

    width: int  # numbers that it gives
    biased: bool
    activation: str | None = None  # `tanh` or `gelu`
    normed: bool = False  # whether a norm without a bias is behind all that


@dataclass(frozen=True)
class Words:
    """How lexical weights are made for words that a text need not have."""

    kept: int  # the strongest of each text
    logarithms: int = 1  # of one and what the head says, one behind the other
    is_tied: bool = True  # whether the head's last product is with the word table
    silent: tuple[int, ...] = ()  # words without weights

    def bias(self, published: np.ndarray) -> np.ndarray:
        """Of the last product."""
        found = published.copy()
        found[list(self.silent)] = SPECIAL_BIAS
        return found


@dataclass(frozen=True)
class Architecture:
    """Everything about a network but its weights."""

    sizes: Config
    family: Family
    pooling: Pooling
    pad_token_id: int
    attentions: tuple[Attention, ...] = ()  # of each layer; none where all are plain
    dense: tuple[Dense, ...] = ()
    tokens_max: int | None = None  # of a text, where the model takes fewer than there are positions
    token_width: int | None = None
    """Numbers of a vector of each token, where the model has such vectors."""
    words: Words | None = None  # where the model has lexical weights of any words, and no others
    separator: int | None = None
    """The token behind which those of a pair have type 1, where a cross-encoder tells its two texts
    apart in this way. All other tokens have type 0."""

    def attention(self, layer: int) -> Attention:
        """That of one layer."""
        return self.attentions[layer] if self.attentions else Attention()

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return self.dense[-1].width if self.dense else self.sizes.hidden

    @property
    def first_position(self) -> int:
        """Row of the position table that the first token gets."""
        return self.pad_token_id + 1 if self.family.padding_has_positions else 0

    @property
    def max_input_tokens(self) -> int:
        """Special tokens included."""
        places = self.sizes.positions - self.first_position
        return min(places, self.tokens_max or places)


def tensor_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor. emb.rel: what a distance adds to the scores; q, k, v, ao:
    attention in and out; qln, kln: norms of a head's queries and keys; aln, aoln: the attention's
    norm, and one of its output alone; fi, fg, fo: feed-forward in, its gate, out; oln, ooln: its
    norms; fin.ln: the last norm; dense0 and so on: what is behind the pooling; tok: what gives each
    token a vector; mlm: the head that guesses masked words, with its norm; words: its last
    product."""
    sizes, family, words = architecture.sizes, architecture.family, architecture.words
    hidden, ffn, size = sizes.hidden, sizes.ffn, sizes.head_size
    own, shared = sizes.heads * size, (sizes.key_heads or sizes.heads) * size
    tables = {WORD_TABLE: (sizes.vocab_rows, hidden), "emb.pos": (sizes.positions, hidden)}
    tables |= {"emb.type": (sizes.type_rows, hidden), "emb.rel": (RELATIVE_BUCKETS, sizes.heads)}
    parts = {"q": (own, hidden), "k": (shared, hidden), "v": (shared, hidden), "ao": (hidden, own)}
    parts |= {"qln": (size,), "kln": (size,)}
    parts |= {"fi": (ffn, hidden), "fg": (ffn, hidden), "fo": (hidden, ffn)}
    parts |= dict.fromkeys(("aln", "aoln", "oln", "ooln"), (hidden,))
    named = {norm: (hidden,) for norm in ("emb.ln", "fin.ln") if family.has(norm)}
    for layer in range(sizes.layers):
        named |= {f"l{layer}.{part}": shape for part, shape in parts.items() if family.has(part)}
    if not family.first_norm:
        del named["l0.aln"]
    shapes = {name: shape for name, shape in tables.items() if family.has(name) and shape[0]}
    for name, shape in named.items():
        part = name.rpartition(".")[2]
        shapes[f"{name}.w"] = shape
        if ("ln" if part.endswith("ln") else part) in family.biased:
            shapes[f"{name}.b"] = shape[:1]
    width = hidden
    for number, module in enumerate(architecture.dense):
        ends = {"w": (module.width, width)} | ({"b": (module.width,)} if module.biased else {})
        ends |= {"ln.w": (module.width,)} if module.normed else {}
        shapes |= {f"dense{number}.{end}": shape for end, shape in ends.items()}
        width = module.width
    if width := architecture.token_width:
        shapes |= {"tok.w": (width, hidden), "tok.b": (width,)}
    if words:
        shapes |= {"mlm.w": (hidden, hidden), "words.b": (sizes.vocab_rows,)}
        shapes |= dict.fromkeys(("mlm.b", "mlm.ln.w", "mlm.ln.b"), (hidden,))
        shapes |= {} if words.is_tied else {"words.w": (sizes.vocab_rows, hidden)}
    return shapes


def relative_buckets() -> np.ndarray:
    """Row of `emb.rel` for each distance from -RELATIVE_REACH to RELATIVE_REACH of key and query.
    Half of the rows are for keys behind the query. Of each half, the first rows are for one
    distance each, and the others for more and more."""
    distances = np.arange(-RELATIVE_REACH, RELATIVE_REACH + 1)
    half, exact = RELATIVE_BUCKETS // 2, RELATIVE_BUCKETS // 4
    far = np.maximum(np.abs(distances), 1)
    # In f32, as the models were trained: the last digit decides where a bucket begins.
    share = np.log(np.float32(far) / exact) / np.float32(math.log(RELATIVE_REACH / exact))
    wide = np.minimum(exact + (share * (half - exact)).astype(int), half - 1)
    return np.where(distances > 0, half, 0) + np.where(far < exact, np.abs(distances), wide)


@dataclass(frozen=True)
class SparseHead:
    """What turns hidden states into lexical weights. The value of a position is `weights . hidden +
    bias + repeat_weight * log(how often the text has its piece)`. Its weight is relu(value),
    divided by the L2 norm of all its text's weights raised to `norm_exponent`: passages of
    different lengths become comparable, as BM25 makes them by their length. A head may have none of
    these but weights and bias, as BGE-M3's."""

    weights: list[float]
    bias: float
    method: str  # one sentence: how it was made
    piece_biases: np.ndarray | None = None
    """f32 `[vocabulary]`: in the place of `bias`, where the head reads surprisals too."""
    repeat_weight: float = 0.0
    norm_exponent: float = 0.0


@dataclass(frozen=True)
class Encoder:
    """A network with weights; `head` is absent for a model without lexical weights."""

    architecture: Architecture
    read: Callable[[str, Rows], np.ndarray]
    """Gives f32 rows of one tensor, so that a network larger than memory can be written."""
    head: SparseHead | None

    def tensor(self, name: str) -> np.ndarray:
        """f32, of the shape in `tensor_shapes`."""
        return self.read(name, ...)

    @property
    def sizes(self) -> Config:
        """Those of its architecture."""
        return self.architecture.sizes

    @property
    def weight_count(self) -> int:
        """Numbers of the whole network."""
        return sum(map(math.prod, tensor_shapes(self.architecture).values()))
