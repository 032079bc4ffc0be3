"""Where a graph's numbers go: large tensors into a file beside the graph, small ones into it."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
from onnx import TensorProto, external_data_helper, numpy_helper

ENDING = ".data"
"""What the name of the second file has more than the graph's."""
TENSOR_BYTES_MIN = 1 << 16
"""Smaller numbers stay in the graph: shapes and axes must be there for its readers, and norms and
biases are not worth a page of their own."""
ALIGNMENT_BYTES = 4096
"""Every tensor starts a page, so that readers can map it."""


class WeightStore:
    """Turns numbers into initializers; large ones are written as they come, and not held.

    OpenVINO maps the second file: its pages are shared by all models and processes that read it.
    A graph with large tensors inside is copied into the memory of each process, and one above 2 GB
    cannot be read at all. The file is made when the first large tensor comes.
    """

    def __init__(self, graph: Path) -> None:
        self._path = graph.with_name(graph.name + ENDING)
        self._file: BinaryIO | None = None

    def keep(self, name: str, value: np.ndarray) -> TensorProto:
        """The initializer `name` with these numbers."""
        if value.nbytes < TENSOR_BYTES_MIN:
            return numpy_helper.from_array(np.asarray(value, order="C"), name)
        if self._file is None:
            self._file = self._path.open("wb")
        at = self._file.tell()
        start = -(-at // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._file.write(bytes(start - at))
        # bf16 is no type of numpy's own: it has no buffer but that of its bytes.
        self._file.write(np.asarray(value, order="C").view(np.uint8).data)
        empty = np.empty((0,), value.dtype)
        initializer = numpy_helper.from_array(empty, name)
        initializer.dims[:] = value.shape
        external_data_helper.set_external_data(
            initializer, location=self._path.name, offset=start, length=value.nbytes
        )
        initializer.ClearField("raw_data")
        return initializer

    def close(self) -> None:
        """Ends the writing; `keep` is not called any more."""
        if self._file:
            self._file.close()
