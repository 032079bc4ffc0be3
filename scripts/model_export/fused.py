"""Fused attention as a GPU may compute it, in numpy: what is rounded, and when.

A kernel walks over the keys in tiles. It keeps, for each query, the greatest score so far, the sum
of exp(score - greatest) and the mixture of the values by these numbers, and scales both down when a
greater score comes. Matrix units multiply numbers of 16 bits; what they add up in, and what the
three are kept in, is the kernel's choice, of which its maker says nothing.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

TILE = 64
"""Keys."""
DEPTH = 16
"""Products that a matrix unit adds up at once: a sum is rounded after so many."""


@dataclass(frozen=True)
class Kernel:
    """The types in which a kernel holds its numbers."""

    operands: type[np.generic] = np.float16
    """Of both products: queries, keys, shares and values."""
    sums: type[np.generic] = np.float32
    """Of both products."""
    softmax: type[np.generic] = np.float32
    """Scores, their exponentials, and the sum of these."""


KERNELS = {
    "fp16, sums in f32": Kernel(),
    "fp16, softmax in fp16": Kernel(softmax=np.float16),
    "fp16, products added up in fp16": Kernel(sums=np.float16),
    "fp16 throughout": Kernel(sums=np.float16, softmax=np.float16),
    "bf16, sums in f32": Kernel(operands=ml_dtypes.bfloat16),
}


def rounded(values: np.ndarray, kind: type[np.generic]) -> np.ndarray:
    """To what `kind` holds, as f32."""
    if kind is np.float32:
        return values.astype(np.float32, copy=False)
    with np.errstate(over="ignore"):
        return values.astype(kind).astype(np.float32)


def fused(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, kernel: Kernel
) -> tuple[np.ndarray, np.ndarray]:
    """The mixture for each query, as 16 bits hold it, and the sum of the shares that it is made of.

    `query` is `[heads, queries, size]` and scaled, `key` and `value` `[heads, keys, size]`.
    """
    ones = np.ones((*value.shape[:2], 1), np.float32)
    query, key = rounded(query, kernel.operands), rounded(key, kernel.operands)
    value = np.concatenate([rounded(value, kernel.operands), ones], axis=2)
    greatest = np.full((*query.shape[:2], 1), -np.inf, np.float32)
    total = np.zeros_like(greatest)
    mixed = np.zeros((*query.shape[:2], value.shape[2]), np.float32)
    # A sum beyond 65,504 is infinite in fp16, and so is what it gives: that is to be seen.
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, key.shape[1], TILE):
            keys, values = (part[:, start : start + TILE] for part in (key, value))
            nothing = np.zeros((*query.shape[:2], keys.shape[1]), np.float32)
            scores = added(nothing, query, keys.transpose(0, 2, 1), kernel.sums)
            scores = rounded(scores, kernel.softmax)
            before, greatest = greatest, np.maximum(greatest, scores.max(axis=2, keepdims=True))
            kept = rounded(np.exp(before - greatest), kernel.softmax)
            powers = rounded(scores - greatest, kernel.softmax)
            parts = rounded(np.exp(powers), kernel.softmax)
            total = rounded(total * kept, kernel.softmax) + tree_sum(parts, kernel.softmax)
            total = rounded(total, kernel.softmax)
            mixed = rounded(mixed * kept, kernel.sums)
            mixed = added(mixed, rounded(parts, kernel.operands), values, kernel.sums)
        mixed /= total
    return rounded(mixed[..., :-1], kernel.operands), mixed[..., -1]


def added(
    sums: np.ndarray, left: np.ndarray, right: np.ndarray, kind: type[np.generic]
) -> np.ndarray:
    """`sums + left @ right`, where the sums are of this type."""
    if kind is np.float32:
        return sums + left @ right
    for start in range(0, left.shape[2], DEPTH):
        part = slice(start, start + DEPTH)
        sums = rounded(sums + left[..., part] @ right[:, part], kind)
    return sums


def tree_sum(parts: np.ndarray, kind: type[np.generic]) -> np.ndarray:
    """Over the last axis, in pairs, as threads that hold a part each add up."""
    while (count := parts.shape[-1]) > 1:
        half = -(-count // 2)
        pairs = parts[..., :half].copy()
        pairs[..., : count - half] += parts[..., half:]
        parts = rounded(pairs, kind)
    return parts
