"""The second, independent opinion: the same network in plain numpy, in f64.

It reads the wheel's tensors and sparse_head.json and nothing of what the package holds: no ONNX,
no folded scale, no padding, no `tokenizers`. f64 makes the rounded f32 results the same on every
machine, so files made from them can be committed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .sparse_head import NORM_FLOOR, SparseHead
from .weights import Config, Model

META = "\u2581"
UNKNOWN_PENALTY = 10.0
"""How far an unknown character scores below the worst piece (`e5.c`, and Unigram elsewhere)."""
ERF_STEP = 1.0 / 512.0
ERF_REACH = 6.0
"""Beyond it erf is 1 to the last bit of f64."""


@dataclass(frozen=True)
class Vectors:
    """Results for one sequence of token ids."""

    dense: np.ndarray
    """f32 `[hidden]`, L2-normalized."""
    token_weights: np.ndarray
    """f32 `[length]`, one for each position."""
    hidden: np.ndarray
    """f64 `[length, hidden]`, the last hidden states."""


class Network(Protocol):
    """What the forward pass needs to know of a model."""

    @property
    def config(self) -> Config:
        """The sizes."""

    @property
    def tensors(self) -> Mapping[str, np.ndarray]:
        """Named as in the wheel; all but the word embeddings."""

    def word_rows(self, rows: np.ndarray | slice) -> np.ndarray:
        """Word embeddings of these ids, f32 `[rows, hidden]`."""


class ReferenceTokenizer:
    """Unigram by Viterbi over whole words, after the wheel's own normalization table."""

    def __init__(self, model: Model) -> None:
        vocabulary = model.vocabulary
        self._normalization = vocabulary.normalization
        self._bos, self._eos, self._unk = vocabulary.bos, vocabulary.eos, vocabulary.unk
        special = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}
        self._ids = {p: i for i, p in enumerate(vocabulary.pieces) if p not in special}
        self._scores = vocabulary.scores.astype(np.float64)
        self._unknown_score = float(self._scores.min()) - UNKNOWN_PENALTY
        self._longest = max(map(len, self._ids))

    def encode(self, text: str) -> list[int]:
        """Token ids with `<s>` and `</s>`; a run of unknown characters becomes one `<unk>`."""
        normal = "".join(self._normalization.get(c, c) for c in text)
        ids = [self._bos]
        for word in normal.split():
            for token_id in self._split_word(META + word):
                if token_id != self._unk or ids[-1] != self._unk:
                    ids.append(token_id)
        return [*ids, self._eos]

    def _split_word(self, word: str) -> list[int]:
        best = [0.0] + [-math.inf] * len(word)
        back: list[tuple[int, int]] = [(0, self._unk)] * (len(word) + 1)
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + self._longest) + 1):
                token_id = self._ids.get(word[start:end])
                if token_id is not None:
                    score = best[start] + self._scores[token_id]
                elif end == start + 1:
                    token_id, score = self._unk, best[start] + self._unknown_score
                else:
                    continue
                if score > best[end]:
                    best[end], back[end] = score, (start, token_id)
        found: list[int] = []
        end = len(word)
        while end > 0:
            end, token_id = back[end]
            found.append(token_id)
        return found[::-1]


class ReferenceEncoder:
    """The forward pass, one sequence at a time."""

    def __init__(self, model: Network, head: SparseHead) -> None:
        self._model = model
        self._config = model.config
        self.positions = model.config.positions
        """The most tokens of one sequence."""
        self._tensors = {name: part.astype(np.float64) for name, part in model.tensors.items()}
        self._head_weights = np.asarray(head.weights, np.float32).astype(np.float64)
        self._head = head
        grid = np.arange(-ERF_REACH, ERF_REACH + ERF_STEP, ERF_STEP)
        self._erf_grid = np.array([math.erf(x) for x in grid])
        self._erf_slope = 2.0 / math.sqrt(math.pi) * np.exp(-grid * grid)

    def run(self, token_ids: list[int]) -> Vectors:
        """Dense vector, token weights and hidden states of one sequence."""
        tensors = self._tensors
        words = self._model.word_rows(np.asarray(token_ids)).astype(np.float64)
        hidden = words + tensors["emb.pos"][: len(token_ids)] + tensors["emb.type"][0]
        hidden = self._norm(hidden, "emb.ln")
        for layer in range(self._config.layers):
            hidden = self._layer(hidden, f"l{layer}")
        mean = hidden.mean(axis=0)
        dense = mean / np.sqrt((mean * mean).sum())
        weights = self._weights(hidden, token_ids)
        return Vectors(dense.astype(np.float32), weights.astype(np.float32), hidden)

    def _weights(self, hidden: np.ndarray, token_ids: list[int]) -> np.ndarray:
        """f64 `[length]`."""
        table = self._head.piece_biases
        bias = np.float32(self._head.bias) if table is None else table[token_ids]
        counts = Counter(token_ids)
        repeats = np.log([counts[token_id] for token_id in token_ids])
        values = hidden @ self._head_weights + bias.astype(np.float64)
        weights = np.maximum(values + self._head.repeat_weight * repeats, 0.0)
        norm = max(math.sqrt(float((weights * weights).sum())), NORM_FLOOR)
        return weights / norm**self._head.norm_exponent

    def _layer(self, hidden: np.ndarray, prefix: str) -> np.ndarray:
        length, heads, size = len(hidden), self._config.heads, self._config.head_size

        def split(name: str) -> np.ndarray:
            return self._linear(hidden, f"{prefix}.{name}").reshape(length, heads, size)

        query, key, value = split("q"), split("k"), split("v")
        scores = np.einsum("qhd,khd->hqk", query, key, optimize=True) / math.sqrt(size)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", shares, value, optimize=True).reshape(length, -1)
        hidden = self._norm(hidden + self._linear(mixed, f"{prefix}.ao"), f"{prefix}.aln")
        wide = self._linear(hidden, f"{prefix}.fi")
        active = 0.5 * wide * (1.0 + self._erf(wide / math.sqrt(2.0)))
        return self._norm(hidden + self._linear(active, f"{prefix}.fo"), f"{prefix}.oln")

    def _linear(self, source: np.ndarray, name: str) -> np.ndarray:
        return source @ self._tensors[f"{name}.w"].T + self._tensors[f"{name}.b"]

    def _norm(self, source: np.ndarray, name: str) -> np.ndarray:
        centred = source - source.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(variance + self._config.layer_norm_epsilon)
        return scaled * self._tensors[f"{name}.w"] + self._tensors[f"{name}.b"]

    def _erf(self, x: np.ndarray) -> np.ndarray:
        """erf to about 1e-12: cubic Hermite interpolation between exact values and slopes."""
        at = (np.clip(x, -ERF_REACH, ERF_REACH - ERF_STEP) + ERF_REACH) / ERF_STEP
        cell = at.astype(np.int64)
        t = at - cell
        low, high = self._erf_grid[cell], self._erf_grid[cell + 1]
        slope_low = self._erf_slope[cell] * ERF_STEP
        slope_high = self._erf_slope[cell + 1] * ERF_STEP
        rise = high - low
        return low + t * (
            slope_low
            + t
            * (
                3.0 * rise
                - 2.0 * slope_low
                - slope_high
                + t * (slope_low + slope_high - 2.0 * rise)
            )
        )


def select_sparse(
    token_ids: list[int], weights: np.ndarray, dropped: set[int], first: int = 0
) -> tuple[list[int], list[float]]:
    """Ascending ids and their weights: the maximum over the positions of an id, only above zero.

    Positions before `first` (a prompt and what precedes it) do not count.
    """
    best: dict[int, float] = {}
    for token_id, weight in list(zip(token_ids, weights.tolist(), strict=True))[first:]:
        if token_id not in dropped and weight > best.get(token_id, 0.0):
            best[token_id] = weight
    ids = sorted(best)
    return ids, [shorten(best[i]) for i in ids]


def shorten(value: float) -> float:
    """The shortest decimal that reads back as the same f32, for files a person may look at."""
    return float(str(np.float32(value)))
