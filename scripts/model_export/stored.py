"""A tensor as it lies in a file: read, and made f32, only when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import Protocol

import numpy as np

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
