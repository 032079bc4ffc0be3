"""What a network is, wherever its weights come from: sizes, tensors by name, lexical head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from default_package.sparse_head import SparseHead
from default_package.weights import Config

from .choices import Family, Pooling


@dataclass(frozen=True)
class Architecture:
    """Everything about a network but its weights."""

    sizes: Config
    family: Family
    pooling: Pooling
    pad_token_id: int

    @property
    def first_position(self) -> int:
        """Row of the position table that the first token gets."""
        return self.pad_token_id + 1 if self.family is Family.XLM_ROBERTA else 0

    @property
    def max_input_tokens(self) -> int:
        """Special tokens included."""
        return self.sizes.positions - self.first_position


def layer_shapes(sizes: Config) -> dict[str, tuple[int, ...]]:
    """Tensors of one layer, named as `default_package.graph.encode` wants them.

    q, k, v, ao: attention in and out; aln: its norm; fi, fo: feed-forward; oln: its norm.
    """
    hidden, ffn = sizes.hidden, sizes.ffn
    shapes: dict[str, tuple[int, ...]] = {}
    for name in ("q", "k", "v", "ao"):
        shapes |= {f"{name}.w": (hidden, hidden), f"{name}.b": (hidden,)}
    shapes |= {"fi.w": (ffn, hidden), "fi.b": (ffn,), "fo.w": (hidden, ffn), "fo.b": (hidden,)}
    for name in ("aln", "oln"):
        shapes |= {f"{name}.w": (hidden,), f"{name}.b": (hidden,)}
    return shapes


def tensor_shapes(sizes: Config) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor but the word table, which is read by rows."""
    shapes: dict[str, tuple[int, ...]] = {
        "emb.pos": (sizes.positions, sizes.hidden),
        "emb.type": (sizes.type_rows, sizes.hidden),
        "emb.ln.w": (sizes.hidden,),
        "emb.ln.b": (sizes.hidden,),
    }
    for layer in range(sizes.layers):
        shapes |= {f"l{layer}.{name}": shape for name, shape in layer_shapes(sizes).items()}
    return shapes


class TensorSource(Protocol):
    """Gives tensors one at a time, so that a network larger than memory can be written."""

    def tensor(self, name: str) -> np.ndarray:
        """f32, of the shape in `tensor_shapes`."""

    def word_rows(self, rows: np.ndarray | slice) -> np.ndarray:
        """Word embeddings of these ids, f32 `[rows, hidden]`."""


class LazyTensors(Mapping[str, np.ndarray]):
    """A source as the mapping that the graph and the reference read; nothing is kept."""

    def __init__(self, source: TensorSource, sizes: Config) -> None:
        self._source = source
        self._names = list(tensor_shapes(sizes))

    def __getitem__(self, name: str) -> np.ndarray:
        """f32, read or made anew."""
        return self._source.tensor(name)

    def __iter__(self) -> Iterator[str]:
        """Names, in the order of the network."""
        return iter(self._names)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._names)


@dataclass(frozen=True)
class Encoder:
    """A network with weights; `head` is absent for a model without lexical weights.

    `config`, `tensors` and `word_rows` are what `default_package` expects of a model.
    """

    architecture: Architecture
    source: TensorSource
    head: SparseHead | None

    @property
    def config(self) -> Config:
        """The sizes."""
        return self.architecture.sizes

    @property
    def tensors(self) -> Mapping[str, np.ndarray]:
        """All but the word table."""
        return LazyTensors(self.source, self.config)

    def word_rows(self, rows: np.ndarray | slice) -> np.ndarray:
        """Word embeddings of these ids, f32 `[rows, hidden]`."""
        return self.source.word_rows(rows)
