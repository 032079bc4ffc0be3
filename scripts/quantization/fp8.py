"""The graph whose dense layers compute in FP8, for TensorRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from model_export import half_package
from model_export.fp8 import Calibrated, EightBuilder

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
    model = half_package.load(source)
    half_package.replay(model, target, lambda *given: EightBuilder(*given, inputs))
