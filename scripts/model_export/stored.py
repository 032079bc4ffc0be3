"""A tensor as it lies in a file: read, and made f32, only when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import EllipsisType

import numpy as np


class Element(Enum):
    """Number formats of published weights; the value is numpy's type of the stored bits."""

    F64 = "<f8"
    F32 = "<f4"
    F16 = "<f2"
    BF16 = "<u2"
    """The high half of an f32; numpy has no such type."""

    @property
    def bytes(self) -> int:
        """Of one number."""
        return np.dtype(self.value).itemsize


@dataclass(frozen=True)
class StoredTensor:
    """Where the numbers are; whoever makes one has checked that they lie within the file."""

    path: Path
    element: Element
    start: int
    """Of the first number, in bytes from the file's beginning."""
    shape: tuple[int, ...]

    def read(self, rows: np.ndarray | slice | EllipsisType = ...) -> np.ndarray:
        """These rows as f32; all of them by default.

        The file is mapped for as long as it takes: what stays mapped counts as memory in use.
        """
        if 0 in self.shape:
            return np.zeros(self.shape, np.float32)
        mapped = np.memmap(self.path, self.element.value, "r", self.start, self.shape)
        part = np.asarray(mapped)[rows]
        if self.element is Element.BF16:
            return (part.astype(np.uint32) << 16).view(np.float32)
        return np.array(part, np.float32, order="C")
