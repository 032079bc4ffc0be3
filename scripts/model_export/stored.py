"""Tensors as they lie in files of safetensors or PyTorch: read, and made f32, when they are asked
for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from default_package.encoder import Rows
from default_package.errors import PackageError

from . import torch_file

FILES = ("model.safetensors", "pytorch_model.bin")
"""Names of a model's weights, and of a module's, the first that is there."""


@dataclass(frozen=True)
class Stored:
    """One tensor."""

    shape: tuple[int, ...]
    dtype: str
    """As safetensors names it."""
    part: Callable[[Rows], np.ndarray]
    """Reads rows as they are stored."""

    def read(self, rows: Rows = ...) -> np.ndarray:
        """These rows as f32; all of them by default."""
        return np.asarray(self.part(rows), np.float32, order="C")

    def rows(self, start: int, shape: tuple[int, ...]) -> Stored:
        """A tensor of this shape that begins with the row `start` of this one."""
        own = slice(start, start + shape[0])
        return replace(self, shape=shape, part=lambda rows: self.part(own)[rows])


def file_of(module: Path) -> Path | None:
    """The file with the weights of a module."""
    return next((path for name in FILES if (path := module / name).is_file()), None)


def read(path: Path) -> dict[str, Stored]:
    """All tensors of a file by name; those of whole numbers, position ids and the like, are not
    needed and may be left out."""
    return _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)


def _read_safetensors(path: Path) -> dict[str, Stored]:
    try:
        file = safe_open(path, "numpy")
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise PackageError(f"{path} is cut short or not a safetensors file: {error}") from error
    return {
        name: Stored(tuple(part.get_shape()), part.get_dtype(), part.__getitem__)
        for name, part in parts.items()
        if part.get_dtype() != "I64"
    }


def _read_torch(path: Path) -> dict[str, Stored]:
    def mapped(dtype: str, start: int, shape: tuple[int, ...], rows: Rows) -> np.ndarray:
        # Mapped for as long as it takes: what stays mapped counts as memory in use.
        return np.array(np.memmap(path, torch_file.FLOATS[dtype], "r", start, shape)[rows])

    return {
        name: Stored(shape, dtype, partial(mapped, dtype, start, shape))
        for name, dtype, start, shape in torch_file.read(path)
    }
