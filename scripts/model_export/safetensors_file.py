"""Reads `.safetensors`: a u64 header length, a JSON header, then the numbers, little endian.

Read here and not with the library of that name because that one cannot give bf16 to numpy.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from default_package.errors import PackageError

from .stored import Element, StoredTensor

HEADER_BYTES_MAX = 100_000_000
"""The format's own limit."""
ELEMENTS = {element.name: element for element in Element}


def read(path: Path) -> dict[str, StoredTensor]:
    """All float tensors by name; others (position ids and the like) are left out."""
    data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    header, start = _header(path, data)
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry.get("dtype") in ELEMENTS:
            tensors[name] = _tensor(path, start, len(data), name, entry)
    return tensors


def _header(path: Path, data: np.ndarray) -> tuple[dict[str, Any], int]:
    """The header, and where the numbers begin."""
    if len(data) < 8:
        raise PackageError(f"{path} is not a safetensors file: it has {len(data)} bytes")
    (length,) = struct.unpack("<Q", data[:8].tobytes())
    if length > min(HEADER_BYTES_MAX, len(data) - 8):
        raise PackageError(f"{path} is cut short or not a safetensors file")
    try:
        header = json.loads(data[8 : 8 + length].tobytes())
    except ValueError as error:
        raise PackageError(f"{path} has a header that is not JSON: {error}") from error
    if not isinstance(header, dict) or not all(isinstance(e, dict) for e in header.values()):
        raise PackageError(f"{path} has a header that is not a table of tensors")
    return header, 8 + length


def _tensor(
    path: Path, base: int, file_bytes: int, name: str, entry: dict[str, Any]
) -> StoredTensor:
    """Offsets count from `base`, the end of the header."""
    element = ELEMENTS[entry["dtype"]]
    try:
        shape = tuple(int(size) for size in entry["shape"])
        start, end = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise PackageError(f"tensor {name} of {path} has no usable shape or offsets") from error
    count = int(np.prod(shape, dtype=np.float64))
    fits = min(shape, default=0) >= 0 and start >= 0 and base + end <= file_bytes
    if not fits or end - start != count * element.bytes:
        raise PackageError(f"tensor {name} of {path} lies outside of the file: it is cut short")
    return StoredTensor(path, element, base + start, shape)
