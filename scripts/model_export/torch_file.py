"""Reads the zip files of `torch.save` (`.bin`, `.pt`) without executing them.

Such a file holds `data.pkl`, which `torch_pickle` reads, and one member for each storage.
"""

import struct
import zipfile
from pathlib import Path

import numpy as np

from default_package.errors import PackageError

from .stored import MappedTensor
from .torch_pickle import Refused, TensorEntry, table

PICKLE_BYTES_MAX = 16 << 20
"""A table of 400 tensors takes 50 KB."""


def read(path: Path) -> dict[str, MappedTensor]:
    """All float tensors by name; others are left out."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            [root] = [n.removesuffix("data.pkl") for n in members if n.endswith("data.pkl")]
            if members[root + "data.pkl"].file_size > PICKLE_BYTES_MAX:
                raise Refused("its data.pkl is too large")
            entries = table(archive.read(root + "data.pkl"))
            _check_byte_order(archive, members, root)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise PackageError(
            f"{path} is not a zip file of torch.save: save it again with PyTorch 1.6 or later"
        ) from error
    except Refused as error:
        raise PackageError(f"{path} is refused: {error}") from error
    data = np.memmap(path, np.uint8, "r")
    return {
        name: _tensor(path, data, members.get(f"{root}data/{entry.storage.key}"), name, entry)
        for name, entry in entries.items()
        if entry.storage.dtype is not None
    }


def _check_byte_order(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], root: str
) -> None:
    """Files of PyTorch before 2.1 do not say; they are little endian."""
    if root + "byteorder" in members and archive.read(root + "byteorder") != b"little":
        raise Refused("its numbers are not little endian")


def _tensor(
    path: Path, data: np.ndarray, member: zipfile.ZipInfo | None, name: str, entry: TensorEntry
) -> MappedTensor:
    dtype = entry.storage.dtype
    assert dtype is not None
    if member is None or member.compress_type != zipfile.ZIP_STORED:
        raise PackageError(f"{path} lacks the numbers of tensor {name}, or has them compressed")
    # The local header repeats the name and may have an extra field of another length.
    header = data[member.header_offset : member.header_offset + 30].tobytes()
    if len(header) < 30:
        raise PackageError(f"tensor {name} lies outside of {path}: the file is cut short")
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
    start = member.header_offset + 30 + name_bytes + extra_bytes
    wanted = (entry.offset + int(np.prod(entry.shape, dtype=np.float64))) * dtype.itemsize
    if wanted > member.file_size or start + member.file_size > len(data):
        raise PackageError(f"tensor {name} lies outside of {path}: the file is cut short")
    at = start + entry.offset * dtype.itemsize
    return MappedTensor(path, dtype, at, entry.shape)
