"""Fused attention as it is emulated: the walk over the tiles is right, and its roundings show."""

import numpy as np
import pytest

from default_package.reference import attention
from model_export.emulate import heads_first
from model_export.fused import KERNELS, Kernel, fused

HEADS, SIZE = 2, 16


def parts(keys: int, queries: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(keys)
    return [random.standard_normal((n, HEADS, SIZE)) for n in (queries, keys, keys)]


def errors(query: np.ndarray, key: np.ndarray, value: np.ndarray, kernel: Kernel) -> np.ndarray:
    """Of the mixture, relative; and the sums of shares must be near one."""
    exact = heads_first(attention(query, key, value))
    given = [heads_first(part) for part in (query / np.sqrt(SIZE), key, value)]
    found, sums = fused(*given, kernel)
    np.testing.assert_allclose(sums, 1.0, atol=0.02)
    return np.linalg.norm(found - exact, axis=2) / np.linalg.norm(exact, axis=2)


@pytest.mark.parametrize("keys", [1, 64, 200, 1_000])
def test_without_roundings_it_is_attention(keys: int) -> None:
    exact = Kernel(operands=np.float32)
    assert errors(*parts(keys), exact).max() < 1e-5
    # The greatest score comes in the last tile.
    query, key, value = parts(keys)
    key[-1] *= 20.0
    assert errors(query, key, value, exact).max() < 1e-5


def test_each_rounding_costs_something_and_bf16_the_most() -> None:
    # Shares are spread over all keys, so that sums are long.
    query, key, value = parts(4_000)
    lost = {n: errors(query / 4, key, value + 1.0, k).mean() for n, k in KERNELS.items()}
    least = lost.pop("fp16, sums in f32")
    assert 1e-5 < least < min(lost.values()) and max(lost.values()) < 0.01
    assert lost["bf16, sums in f32"] > 5 * least


def test_a_sum_that_fp16_cannot_hold_is_seen() -> None:
    """Equal scores of more keys than its largest number."""
    query, ones = np.zeros((1, 1, 1)), np.ones((1, 66_000, 1))
    for softmax, expected in ((np.float16, 0.0), (np.float32, 1.0)):
        found, sums = fused(query, ones, ones, Kernel(softmax=softmax))
        assert found.item() == pytest.approx(expected) and sums.item() == pytest.approx(expected)
