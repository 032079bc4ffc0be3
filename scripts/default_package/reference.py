"""The second, independent opinion: the same network in plain numpy, in f64.

It reads the tensors and the head and nothing of what the package holds: no ONNX, no folded scale,
no padding. f64 makes the rounded f32 results the same on every machine, so files made from them can
be committed.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import numpy as np

from .choices import Pooling
from .encoder import NORM_FLOOR, Encoder, Rows, Words, relative_buckets, tensor_shapes

ERF = np.frompyfunc(math.erf, 1, 1)  # numpy has none of its own
ROOT = math.sqrt(2.0 / math.pi)

ACTIVATIONS: dict[str | None, Callable[[np.ndarray], np.ndarray]] = {
    None: np.asarray,
    "tanh": np.tanh,
    "gelu": lambda x: 0.5 * x * (1.0 + ERF(x / math.sqrt(2.0)).astype(np.float64)),
    # As it is computed in fewer steps.
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + np.tanh(ROOT * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
}


@dataclass(frozen=True)
class Found:
    """What a network gives for one text."""

    dense: np.ndarray  # f32 `[hidden]`, L2-normalized
    token_weights: np.ndarray
    """f32 `[length]`, one for each position, zeros for a model without a head."""
    token_vectors: np.ndarray | None = None
    """f32 `[length, width]`, L2-normalized each, of a model that has them."""
    words: dict[int, float] | None = None
    """Weights of the strongest, none of which is zero, of a model that has them."""
    hidden: np.ndarray | None = None
    """f64 `[length, hidden]`, the last hidden states, which no graph gives."""

    def lexical(self, token_ids: list[int], dropped: Collection[int]) -> dict[int, float]:
        """The text's weights by id, ascending."""
        if self.words is not None:
            return dict(sorted(self.words.items()))
        return select_sparse(token_ids, self.token_weights, dropped)


def attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, added: np.ndarray | float
) -> np.ndarray:
    """f64 `[length, heads, head size]` -> the mixture of the values, the same. `added` is what some
    families add to the scores, `[heads, length, length]`."""
    scores = np.einsum("qhd,khd->hqk", query, key, optimize=True) / math.sqrt(query.shape[-1])
    scores += added
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", shares, value, optimize=True)


class ReferenceEncoder:
    """The forward pass, one sequence at a time. A tensor is read when its turn comes: in f64, all
    of a large model's take more than its package."""

    def __init__(self, encoder: Encoder) -> None:
        self._architecture, self._encoder = encoder.architecture, encoder
        self._family, self._sizes = encoder.architecture.family, encoder.sizes
        self._names = tensor_shapes(encoder.architecture).keys()
        self._activate = ACTIVATIONS[self._family.activation]

    def run(self, token_ids: list[int]) -> Found:
        """All that is known of one sequence."""
        architecture, first = self._architecture, self._architecture.first_position
        found = [self._tensor("emb.word", slice(word, word + 1)) for word in token_ids]
        hidden = np.concatenate(found)
        if "emb.pos" in self._names:
            hidden = hidden + self._tensor("emb.pos")[first : first + len(token_ids)]
        if "emb.type" in self._names:
            separator, types = architecture.separator, np.zeros(len(token_ids), np.intp)
            if separator in token_ids:
                types[token_ids.index(separator) + 1 :] = 1
            hidden = hidden + self._tensor("emb.type")[types]
        if self._family.scaled_words:
            hidden = hidden * math.sqrt(self._sizes.hidden)
        hidden = self._norm(hidden, "emb.ln")
        for number in range(self._sizes.layers):
            hidden = self._branch(hidden, f"l{number}.a", partial(self._attended, number))
            hidden = self._branch(hidden, f"l{number}.o", partial(self._fed, f"l{number}"))
        hidden = self._norm(hidden, "fin.ln")
        poolings = {Pooling.CLS: hidden[0], Pooling.MEAN: hidden.mean(axis=0)}
        pooled = poolings.get(architecture.pooling, hidden[-1])
        for number, module in enumerate(architecture.dense):
            pooled = self._linear(pooled, f"dense{number}")
            pooled = self._norm(ACTIVATIONS[module.activation](pooled), f"dense{number}.ln")
        vectors = _unit(self._linear(hidden, "tok")) if architecture.token_width else None
        weights, words = self._weights(hidden, token_ids), architecture.words
        words = words and self._strongest(hidden, words)
        return Found(_unit(pooled), weights, vectors, words, hidden)

    def _tensor(self, name: str, rows: Rows = ...) -> np.ndarray:
        return self._encoder.read(name, rows).astype(np.float64)

    def _weights(self, hidden: np.ndarray, token_ids: list[int]) -> np.ndarray:
        """f32 `[length]`."""
        if (head := self._encoder.head) is None:
            return np.zeros(len(token_ids), np.float32)
        counts = Counter(token_ids)
        bias = np.float32(head.bias) if head.piece_biases is None else head.piece_biases[token_ids]
        values = hidden @ np.asarray(head.weights, np.float32).astype(np.float64)
        repeats = np.log([counts[token_id] for token_id in token_ids])
        values = values + bias.astype(np.float64) + head.repeat_weight * repeats
        weights = np.maximum(values, 0.0)
        norm = max(math.sqrt(float((weights * weights).sum())), NORM_FLOOR)
        return (weights / norm**head.norm_exponent).astype(np.float32)

    def _strongest(self, hidden: np.ndarray, words: Words) -> dict[int, float]:
        """Those that a graph gives, in the order of their ids."""
        ready = self._norm(self._activate(self._linear(hidden, "mlm")), "mlm.ln")
        every = slice(0, self._sizes.vocab_rows)
        table = self._tensor("emb.word" if words.is_tied else "words.w", every)
        logits = ready @ table.T + words.bias(self._tensor("words.b"))[every]
        weights = np.maximum(logits.max(axis=0), 0.0)
        for _ in range(words.logarithms):
            weights = np.log1p(weights)
        weights = weights.astype(np.float32)
        ids = np.sort(np.argsort(-weights, kind="stable")[: words.kept])
        return {int(word): shorten(weights[word]) for word in ids if weights[word] > 0.0}

    def _branch(
        self, hidden: np.ndarray, part: str, run: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        norm = f"{part}ln"
        if self._family.norm_before:
            return hidden + self._norm(run(self._norm(hidden, norm)), f"{part}oln")
        return self._norm(hidden + run(hidden), norm)

    def _attended(self, layer: int, hidden: np.ndarray) -> np.ndarray:
        length, size = len(hidden), self._sizes.head_size
        prefix, own = f"l{layer}", self._architecture.attention(layer)

        def split(name: str) -> np.ndarray:
            heads = self._linear(hidden, f"{prefix}.{name}").reshape(length, -1, size)
            return self._norm(heads, f"{prefix}.{name}ln")

        query, key, value = split("q"), split("k"), split("v")
        if own.rotary:
            angles = own.rotary.angles(length, size)[:, None]
            query, key = _turned(query, angles), _turned(key, angles)
        key, value = (np.repeat(one, query.shape[1] // one.shape[1], 1) for one in (key, value))
        far = np.arange(length) - np.arange(length)[:, None]
        added: np.ndarray | float = 0.0
        if "emb.rel" in self._names:
            by_distance = self._tensor("emb.rel")[relative_buckets()]
            reach = len(by_distance) // 2
            added = by_distance[np.clip(far, -reach, reach) + reach].transpose(2, 0, 1)
        if self._family.causal:
            added = np.where(far > 0, -np.inf, 0.0)
        if own.window:
            added = np.where(np.abs(far) > own.window, -np.inf, 0.0)
        mixed = attention(query, key, value, added).reshape(length, -1)
        return self._linear(mixed, f"{prefix}.ao")

    def _fed(self, prefix: str, hidden: np.ndarray) -> np.ndarray:
        middle = self._linear(hidden, f"{prefix}.fi")
        if f"{prefix}.fg.w" in self._names:
            middle *= self._activate(self._linear(hidden, f"{prefix}.fg"))
        else:
            middle = self._activate(middle)
        return self._linear(middle, f"{prefix}.fo")

    def _linear(self, source: np.ndarray, name: str) -> np.ndarray:
        return self._shifted(source @ self._tensor(f"{name}.w").T, name)

    def _norm(self, source: np.ndarray, name: str) -> np.ndarray:
        if f"{name}.w" not in self._names:
            return source
        centred = source if self._family.rms else source - source.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(variance + self._sizes.layer_norm_epsilon)
        weight = self._tensor(f"{name}.w") + self._family.norm_adds_one
        return self._shifted(scaled * weight, name)

    def _shifted(self, source: np.ndarray, name: str) -> np.ndarray:
        return source + self._tensor(f"{name}.b") if f"{name}.b" in self._names else source


def _unit(source: np.ndarray) -> np.ndarray:
    """f32, each vector divided by its length."""
    return (source / np.sqrt((source * source).sum(axis=-1, keepdims=True))).astype(np.float32)


def _turned(source: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """`[length, heads, size]`: pairs half a head apart as complex numbers, times e^(i angle)."""
    half = source.shape[-1] // 2
    pairs = (source[..., :half] + 1j * source[..., half:]) * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    """Of two vectors, in f64."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def select_sparse(
    token_ids: list[int], weights: np.ndarray, dropped: Collection[int], first: int = 0
) -> dict[int, float]:
    """Weights by ascending ids: the maximum over the positions of an id, only above zero. Positions
    before `first` (a prompt and what precedes it) do not count."""
    best: dict[int, float] = {}
    for token_id, weight in list(zip(token_ids, weights.tolist(), strict=True))[first:]:
        if token_id not in dropped and weight > best.get(token_id, 0.0):
            best[token_id] = weight
    return {token_id: shorten(best[token_id]) for token_id in sorted(best)}


def shorten(value: float) -> float:
    """The shortest decimal that reads back as the same f32, for files a person may look at."""
    return float(str(np.float32(value)))
