"""Reads `.safetensors` with the library of that name; ml_dtypes has numpy's type for bf16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
from safetensors import SafetensorError, safe_open

from default_package.errors import PackageError

from .stored import Rows

FLOATS = ("F64", "F32", "F16", "BF16")


class Slices:
    """A tensor of which the library reads what is asked for."""

    def __init__(self, part: Any) -> None:
        self._part, self.shape = part, tuple(part.get_shape())

    def read(self, rows: Rows = ...) -> np.ndarray:
        """These rows as f32; all of them by default."""
        if isinstance(rows, np.ndarray):
            return np.concatenate([self.read(slice(row, row + 1)) for row in rows.tolist()])
        return np.asarray(self._part[rows], np.float32)


def read(path: Path) -> dict[str, Slices]:
    """All float tensors by name; others (position ids and the like) are left out."""
    try:
        file = safe_open(path, "numpy")
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise PackageError(f"{path} is cut short or not a safetensors file: {error}") from error
    return {name: Slices(part) for name, part in parts.items() if part.get_dtype() in FLOATS}
