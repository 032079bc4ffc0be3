"""Where a graph's numbers go: into model.onnx itself, or one by one into a file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from onnx import TensorProto, external_data_helper, numpy_helper

EXTERNAL_BYTES_MIN = 512 << 20
"""Larger models go into a second file. A model.onnx above 2 GB cannot be read at all, and one that
is smaller has to be held in memory two or three times by what writes and reads it."""
TENSOR_BYTES_MIN = 1024
"""Smaller numbers stay in model.onnx: shapes and axes must be there for its readers."""
ALIGNMENT_BYTES = 4096
"""Every tensor starts a page, so that readers can map it."""


class WeightStore(Protocol):
    """Turns numbers into an initializer."""

    def keep(self, name: str, value: np.ndarray) -> TensorProto:
        """The initializer `name` with these numbers."""

    def close(self) -> None:
        """Ends the writing; `keep` is not called any more."""


class InlineStore:
    """All numbers in model.onnx."""

    def keep(self, name: str, value: np.ndarray) -> TensorProto:
        return numpy_helper.from_array(np.asarray(value, order="C"), name)

    def close(self) -> None:
        pass


class ExternalStore:
    """Large tensors in a file beside model.onnx, written as they come and not held."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO = path.open("wb")

    def keep(self, name: str, value: np.ndarray) -> TensorProto:
        if value.nbytes < TENSOR_BYTES_MIN:
            return numpy_helper.from_array(np.asarray(value, order="C"), name)
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
        self._file.close()


def open_store(onnx_path: Path, weight_bytes: int, external_bytes_min: int) -> WeightStore:
    """The store for a model with this much in numbers."""
    if weight_bytes < external_bytes_min:
        return InlineStore()
    return ExternalStore(onnx_path.with_name(onnx_path.name + ".data"))
