"""The graph whose dense layers read numbers of 8 bits (FP8, E4M3), for TensorRT.

QuantizeLinear and DequantizeLinear around each of a layer's four products say it; a builder makes
one kernel of them. Weights are stored in 8 bits, rounded by `compensated`. A weight has one scale,
an input too, from the largest number that calibration texts gave: with a scale for each column of
query, key and value TensorRT-RTX computes that product in f16, and the vectors are no better. All
else is as in f16: attention's own products stay there, so that they remain one kernel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from default_package.errors import PackageError
from model_export.half import HalfBuilder

from . import calibration

FIELD = "fp8"
"""Of the manifest."""
GRAPH = "model.fp8.onnx"
PREFIX = "model.fp8.onnx"
"""Of its files."""
TOLERANCES = {"dense_cosine_min": 0.997, "sparse_max_abs": 0.06}
"""Of the canary. On 399 texts, of which 240 were not calibrated with, the cosine to f32 was at
least 0.99907, and weights were within 0.034."""
METHOD = "FP8 (E4M3): inputs of the dense layers, and their weights by GPTQ, one scale for each"
FP8 = ml_dtypes.float8_e4m3fn
LARGEST = float(ml_dtypes.finfo(FP8).max)
SCALE_MIN = float(np.finfo(np.float16).smallest_normal)
"""Scales are f16, as what they divide: a smaller one would lose digits."""
ZERO = "zero.fp8"
"""Where numbers are rounded, its type says to which."""
DAMPING = 0.01
"""Of the mean square of the inputs, added to each: inputs that never occur divide nothing."""
Nearest = Callable[[np.ndarray], np.ndarray]
"""Numbers -> what they are stored as, in f32."""


@dataclass
class Calibrated:
    """What calibration texts gave of a tensor `[positions, width]`."""

    largest: float
    """Absolute number."""
    moments: np.ndarray
    """f32 `[width, width]`: sums of products of two columns."""


def calibrate(source: Path, sequences: list[list[int]]) -> dict[str, Calibrated]:
    """What the inputs of the layers' products were in all sequences together. Takes a minute."""
    found: dict[str, Calibrated] = {}
    for name, states in calibration.inputs(source, sequences):
        width = states.shape[1]
        seen = found.setdefault(name, Calibrated(0.0, np.zeros((width, width), np.float32)))
        seen.largest = max(seen.largest, float(np.abs(states).max()))
        seen.moments += states.T @ states
    return found


def write(source: Path, target: Path, inputs: dict[str, Calibrated]) -> None:
    """`source`, an f32 graph of these scripts, as `target`."""
    EightBuilder(target, inputs).replay(source)


def scale_of(largest: float) -> np.float16:
    """What numbers of at most `largest` are divided by, so that they use the whole range."""
    return np.float16(max(largest / LARGEST, SCALE_MIN))


class EightBuilder(HalfBuilder):
    """As HalfBuilder, with the products of layers and weights in 8 bits.

    `inputs` has each tensor that they read.
    """

    def __init__(self, path: Path, inputs: Mapping[str, Calibrated]) -> None:
        super().__init__(path)
        self._inputs = inputs
        self._rounded: set[str] = set()

    def op(
        self, kind: str, inputs: list[str], output: str, more: Sequence[str] = (), **attributes: Any
    ) -> str:
        if kind == "MatMul" and inputs[1] in self._pending and output.startswith("layer"):
            source, weight = inputs
            inputs = [self._round_input(source), self._round_weight(weight, source)]
        return super().op(kind, inputs, output, more, **attributes)

    def _runs_in_half(self, kind: str, inputs: list[str], output: str) -> bool:
        if kind in ("QuantizeLinear", "DequantizeLinear"):
            return True
        return super()._runs_in_half(kind, inputs, output)

    def _round_input(self, source: str) -> str:
        if source not in self._inputs:
            raise PackageError(f"calibration did not see {source}")
        if not self._rounded:
            self.constant(ZERO, np.zeros((), FP8))
        if source not in self._rounded:
            self._rounded.add(source)
            self.floats(f"{source}.scale", scale_of(self._inputs[source].largest))
            inputs = [source, f"{source}.scale", ZERO]
            self.op("QuantizeLinear", inputs, f"{source}.fp8")
            self.op("DequantizeLinear", [f"{source}.fp8", f"{source}.scale"], f"{source}.rounded")
        return f"{source}.rounded"

    def _round_weight(self, name: str, source: str) -> str:
        weight = self._pending.pop(name)
        scale = scale_of(float(np.abs(weight).max()))

        def nearest(numbers: np.ndarray) -> np.ndarray:
            return np.clip(numbers, -LARGEST, LARGEST).astype(FP8).astype(np.float32)

        exact = weight / np.float32(scale)
        rounded = compensated(exact, self._inputs[source].moments, nearest)
        self.constant(name, rounded.astype(FP8))
        self.floats(f"{name}.scale", scale)
        return self.op("DequantizeLinear", [name, f"{name}.scale"], f"{name}.rounded")


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
