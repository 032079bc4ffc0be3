"""Runs a package's model.onnx on this machine's CPU with OpenVINO."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import openvino

BATCH_ITEMS = 8
"""Rows of one run: enough that padding is exercised, few enough that little of it is wasted."""


@dataclass(frozen=True)
class Row:
    """The outputs for one sequence, padding cut off."""

    dense: np.ndarray
    token_weights: np.ndarray


class Runtime:
    """A compiled model; `precision` is `f32`, `bf16` or `f16`."""

    def __init__(self, path: Path, precision: str) -> None:
        core = openvino.Core()
        settings = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
        self._compiled = core.compile_model(str(path), "CPU", settings)

    @staticmethod
    def supports(precision: str) -> bool:
        """Whether this CPU computes in `precision` natively."""
        capabilities = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return precision.upper() in capabilities

    def run_padded(self, ids: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int32 `[batch, length]` twice -> dense and token weights, as the graph gives them.

        Token weights are zeros for a graph without a head.
        """
        result = self._compiled({"input_ids": ids, "attention_mask": mask})
        if len(self._compiled.outputs) == 1:
            return np.array(result["dense"]), np.zeros(ids.shape, np.float32)
        return np.array(result["dense"]), np.array(result["token_weights"])

    def run(self, sequences: list[list[int]], pad: int) -> list[Row]:
        """One row for each sequence, in order; batches of neighbours in length."""
        rows: list[Row | None] = [None] * len(sequences)
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        for start in range(0, len(order), BATCH_ITEMS):
            picked = order[start : start + BATCH_ITEMS]
            length = max(len(sequences[i]) for i in picked)
            ids = np.full((len(picked), length), pad, np.int32)
            mask = np.zeros((len(picked), length), np.int32)
            for row, i in enumerate(picked):
                ids[row, : len(sequences[i])] = sequences[i]
                mask[row, : len(sequences[i])] = 1
            dense, weights = self.run_padded(ids, mask)
            for row, i in enumerate(picked):
                rows[i] = Row(dense[row], weights[row, : len(sequences[i])])
        return [row for row in rows if row is not None]

    def operations(self) -> Counter[str]:
        """How many nodes of each kind the plugin really runs, after its fusions."""
        nodes = self._compiled.get_runtime_model().get_ops()
        return Counter(str(_text(node.get_rt_info()["layerType"])) for node in nodes)


def _text(value: object) -> object:
    return value.astype(str) if hasattr(value, "astype") else value
