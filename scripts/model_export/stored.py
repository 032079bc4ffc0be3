"""Tensors as they lie in files: read, and made f32, only when they are asked for.

Files in safetensors are read with the library of that name; ml_dtypes has numpy's type for bf16.
"""

from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import Any, Protocol

import ml_dtypes  # noqa: F401
import numpy as np
from safetensors import SafetensorError, safe_open

from default_package.errors import PackageError

FLOATS = ("F64", "F32", "F16", "BF16")
Rows = np.ndarray | slice | EllipsisType


class Stored(Protocol):
    """A tensor of any file."""

    shape: tuple[int, ...]

    def read(self, rows: Rows = ...) -> np.ndarray:
        """These rows as f32; all of them by default."""


@dataclass
class MappedTensor:
    """Where the numbers are; whoever makes one has checked that they lie within the file."""

    path: Path
    dtype: np.dtype
    start: int
    """Of the first number, in bytes from the file's beginning."""
    shape: tuple[int, ...]

    def read(self, rows: Rows = ...) -> np.ndarray:
        """The file is mapped for as long as it takes: what stays mapped counts as memory in use."""
        mapped = np.memmap(self.path, self.dtype, "r", self.start, self.shape)
        return np.array(np.asarray(mapped)[rows], np.float32, order="C")


class Slices:
    """A tensor of which the library reads what is asked for."""

    def __init__(self, part: Any) -> None:
        self._part, self.shape, self.dtype = part, tuple(part.get_shape()), part.get_dtype()

    def read(self, rows: Rows = ...) -> np.ndarray:
        """These rows as f32; all of them by default."""
        if isinstance(rows, np.ndarray):
            return np.concatenate([self.read(slice(row, row + 1)) for row in rows.tolist()])
        return np.asarray(self._part[rows], np.float32)


def read_safetensors(path: Path) -> dict[str, Slices]:
    """All tensors by name but whole numbers of 64 bits: position ids and the like."""
    try:
        file = safe_open(path, "numpy")
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise PackageError(f"{path} is cut short or not a safetensors file: {error}") from error
    return {name: Slices(part) for name, part in parts.items() if part.get_dtype() != "I64"}
