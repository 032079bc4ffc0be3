"""What a call returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Dense = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Sparse:
    """Lexical weights of one text: weights above zero of its token ids.

    `indices` (int32, ascending) and `values` (float32) have the same length, which is zero for an
    empty text.
    """

    indices: NDArray[np.int32]
    values: NDArray[np.float32]

    def __len__(self) -> int:
        """The number of weights."""
        return len(self.indices)

    def to_dict(self) -> dict[int, float]:
        """Token ids and their weights, as Milvus takes them."""
        return dict(zip(self.indices.tolist(), self.values.tolist(), strict=True))

    def dot(self, other: Sparse) -> float:
        """The similarity with another text: the sum of products over shared token ids."""
        _, mine, theirs = np.intersect1d(
            self.indices, other.indices, assume_unique=True, return_indices=True
        )
        return float(self.values[mine] @ other.values[theirs])


class Paired(NamedTuple):
    """Both kinds of the same texts: `dense` has a row for each, `sparse` an entry."""

    dense: Dense
    sparse: list[Sparse]
