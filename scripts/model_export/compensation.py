"""Rounds a weight so that its product changes less than by rounding each number to the nearest.

The method of GPTQ (Frantar and others, 2022): rows are rounded one after the other, and what one
loses is put onto those that follow, in the proportions in which their inputs occur together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

DAMPING = 0.01
"""Of the mean square of the inputs, added to each: inputs that never occur divide nothing."""
Nearest = Callable[[np.ndarray], np.ndarray]
"""Numbers -> what they are stored as, in f32."""


def compensated(weight: np.ndarray, moments: np.ndarray, nearest: Nearest) -> np.ndarray:
    """f32 `[in, out]`, every number one of `nearest`.

    `moments` `[in, in]` has the sums of products of two inputs, over all calibrated positions.
    """
    squares = moments.astype(np.float64)
    squares[np.diag_indices_from(squares)] += DAMPING * np.diag(squares).mean() + 1e-12
    # Row i: how the rows from i on make up for what row i loses.
    shares = np.linalg.cholesky(np.linalg.inv(squares)).T.astype(np.float32)
    left = weight.astype(np.float32)
    found = np.empty_like(left)
    for row in range(len(left)):
        found[row] = nearest(left[row])
        lost = (left[row] - found[row]) / shares[row, row]
        left[row + 1 :] -= np.outer(shares[row, row + 1 :], lost)
    return found
