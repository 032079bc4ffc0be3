"""Runs a package's model.onnx on this machine's CPU with OpenVINO."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openvino

from . import rows
from .rows import Batch, Found, Outputs


class Runtime:
    """A compiled model, which computes in f32 but for what the graph rounds itself."""

    def __init__(self, path: Path) -> None:
        settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        self._compiled = openvino.Core().compile_model(str(path), "CPU", settings)

    def run_rows(self, inputs: dict[str, np.ndarray]) -> Outputs:
        """All outputs of a batch, as the graph gives them."""
        result = self._compiled(inputs)
        found = {port.any_name: np.array(result[port]) for port in self._compiled.outputs}
        zeros = np.zeros(inputs["input_ids"].shape, np.float32)
        weights = found.get("token_weights", zeros)
        of_words = (found["words"], found["word_weights"]) if "words" in found else None
        return Outputs(found["dense"], weights, found.get("token_vectors"), of_words)

    def run(self, sequences: Sequence[Sequence[int]], pad: int, pooling: str) -> list[Found]:
        """What is found for each sequence of token ids, in order."""
        found: dict[int, Found] = {}
        for batch in rows.batches(sequences, pad, pooling):
            found |= self.run_batch(batch)
        return [found[text] for text in range(len(sequences))]

    def run_batch(self, batch: Batch) -> dict[int, Found]:
        """What is found for each text of a batch, by its number."""
        return batch.split(self.run_rows(batch.inputs))

    def nodes(self) -> dict[str, tuple[str, str]]:
        """Kind and type of each node that the plugin really runs, constants too, by its name."""
        nodes = self._compiled.get_runtime_model().get_ops()
        keys = ("layerType", "outputPrecisions")
        return {n.get_friendly_name(): (_told(n, keys[0]), _told(n, keys[1])) for n in nodes}


def _told(node: openvino.Node, key: str) -> str:
    value = node.get_rt_info()[key]
    return str(value.astype(str) if hasattr(value, "astype") else value)
