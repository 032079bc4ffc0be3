"""Tensors as they lie in files of safetensors or PyTorch: read, and made f32, when they are asked
for.

The zip files of `torch.save` (`.bin`, `.pt`) are read without executing them. Such a file holds
`data.pkl`, the table of tensors, and one member for each storage. A pickle can call any Python
function. Here it can name only what stands in for `OrderedDict` and for two functions of PyTorch,
and types of storages; and it can use only the opcodes that a table of tensors needs. All else is
refused by name.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from default_package.encoder import Rows
from default_package.errors import PackageError

FILES = ("model.safetensors", "pytorch_model.bin")
"""Names of a model's weights, and of a module's, the first that is there."""
PICKLE_BYTES_MAX = 16 << 20  # a table of 400 tensors takes 50 KB
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16}
"""Types of numbers, by the names that safetensors has for them."""
STORAGES = {"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16"}
STORAGES |= {"BFloat16Storage": "BF16"}
# Position ids and the like: known, and not needed.
STORAGES |= {f"{kind}Storage": "" for kind in ("Long", "Int", "Short", "Char", "Byte", "Bool")}
OPCODES = """PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND
APPENDS EMPTY_DICT SETITEM SETITEMS BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL
STACK_GLOBAL BINPERSID REDUCE BUILD"""


@dataclass(frozen=True)
class Stored:
    """One tensor."""

    shape: tuple[int, ...]
    dtype: str  # as safetensors names it
    part: Callable[[Rows], np.ndarray]  # reads rows as they are stored

    def read(self, rows: Rows = ...) -> np.ndarray:
        """These rows as f32; all of them by default."""
        return np.asarray(self.part(rows), np.float32, order="C")


def file_of(module: Path) -> Path | None:
    """The file with the weights of a module."""
    return next((path for name in FILES if (path := module / name).is_file()), None)


def read(path: Path) -> dict[str, Stored]:
    """All tensors of a file by name; those of whole numbers, position ids and the like, are not
    needed and may be left out."""
    if path.suffix != ".safetensors":
        return _read_torch(path)
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


NOT_OF_TORCH = (
    zipfile.BadZipFile,
    ValueError,
    NotImplementedError,
    EOFError,
    RuntimeError,
    OSError,
)
"""What `zipfile` raises where the bytes of an archive are others."""


def _read_torch(path: Path) -> dict[str, Stored]:
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = {info.filename: info for info in archive.infolist()}
            [root] = [n.removesuffix("data.pkl") for n in members if n.endswith("data.pkl")]
            if members[root + "data.pkl"].file_size > PICKLE_BYTES_MAX:
                raise Refused("its data.pkl is too large")
            entries = table(archive.read(root + "data.pkl"))
            order = root + "byteorder"
            # Files of PyTorch before 2.1 do not say; they are little endian.
            if order in members and archive.read(order) != b"little":
                raise Refused("its numbers are not little endian")
    except NOT_OF_TORCH as error:
        if isinstance(error, OSError) and error.filename:  # It cannot be opened.
            raise
        cure = "save it again with PyTorch 1.6 or later"
        raise PackageError(f"{path} is not a zip file of torch.save: {cure}") from error
    except Refused as error:
        raise PackageError(f"{path} is refused: {error}") from error

    def mapped(dtype: str, start: int, shape: tuple[int, ...], rows: Rows) -> np.ndarray:
        # Mapped for as long as it takes: what stays mapped counts as memory in use.
        return np.array(np.memmap(path, FLOATS[dtype], "r", start, shape)[rows])

    found, file_bytes = {}, path.stat().st_size
    for name, entry in entries.items():
        member = members.get(f"{root}data/{entry.key}")
        if not entry.dtype:
            continue
        if member is None or member.compress_type != zipfile.ZIP_STORED:
            raise PackageError(f"{path} lacks the numbers of tensor {name}, or has them compressed")
        # The local header repeats the name and may have an extra field of another length.
        header = np.fromfile(path, "<u2", 2, offset=min(member.header_offset, file_bytes) + 26)
        start = member.header_offset + 30 + int(header.sum())
        size = np.dtype(FLOATS[entry.dtype]).itemsize
        wanted = (entry.offset + math.prod(entry.shape)) * size
        is_whole = len(header) == 2 and start + member.file_size <= file_bytes
        if not is_whole or wanted > member.file_size:
            raise PackageError(f"tensor {name} lies outside of {path}: the file is cut short")
        part = partial(mapped, entry.dtype, start + entry.offset * size, entry.shape)
        found[name] = Stored(entry.shape, entry.dtype, part)
    return found


class Numbers(NamedTuple):
    """Those of one member of the archive, or those of a tensor: contiguous, `offset` into it."""

    dtype: str  # whole numbers have none
    key: str
    offset: int = 0
    shape: tuple[int, ...] | None = None  # that of a tensor


class Refused(Exception):
    """Why a pickle is not a table of tensors."""


def table(data: bytes) -> dict[str, Numbers]:
    """The pickle's dictionary; entries that are no tensors are left out."""
    needed = set(OPCODES.split())
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name not in needed:
                unneeded = f"{opcode.name}, which a table of tensors does not need"
                raise Refused(f"its pickle uses {unneeded}")
            # The library makes room for all numbers below.
            if opcode.name == "LONG_BINPUT" and argument > len(data):
                raise ValueError("it numbers more objects than it can have")
        found = _TableUnpickler(io.BytesIO(data)).load()
    except Refused:
        raise
    except Exception as error:  # A malformed pickle can make the library raise anything.
        raise Refused(f"its pickle is malformed ({error})") from error
    if isinstance(found, dict):
        found = found.get("state_dict", found)
    if not isinstance(found, dict):
        raise Refused("it does not hold a table of tensors")
    numbers = {str(name): one for name, one in found.items() if isinstance(one, Numbers)}
    return {name: one for name, one in numbers.items() if one.shape is not None}


class _Table(dict[Any, Any]):
    """Stands in for OrderedDict. Its attributes (version numbers) are not needed."""

    def __setstate__(self, _: Any) -> None:
        """They would take the place of methods."""


class _RebuildTensor:
    """Stands in for PyTorch's function. It has no attribute that a pickle could set."""

    __slots__ = ()

    def __call__(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Numbers:
        """Only contiguous tensors: the others come from views that nobody publishes."""
        sizes = (offset, *shape)
        whole = all(isinstance(size, int) and size >= 0 for size in sizes)
        if not isinstance(storage, Numbers) or storage.shape is not None or not whole:
            raise Refused("its pickle has a tensor without storage, offset or shape")
        expected, step = [], 1
        for size in reversed(shape):
            expected.append(step)
            step *= size
        if tuple(strides) != tuple(expected[::-1]) and step > 1:
            raise Refused(f"it has a tensor of shape {tuple(shape)} that is not contiguous")
        return storage._replace(offset=offset, shape=tuple(shape))


class _RebuildParameter:
    """The tensor itself: what else a parameter has is for training."""

    __slots__ = ()

    def __call__(self, tensor: Any, *_: Any) -> Any:
        return tensor


NAMES = {("torch", kind): kind for kind in STORAGES} | {
    ("collections", "OrderedDict"): _Table,
    ("torch._utils", "_rebuild_tensor_v2"): _RebuildTensor(),
    ("torch._utils", "_rebuild_parameter"): _RebuildParameter(),
}
"""What a pickle may name. BUILD, which sets attributes, can change none of them."""


class _TableUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in NAMES:
            raise Refused(f"its pickle would call {module}.{name}")
        return NAMES[module, name]

    def persistent_load(self, pid: Any) -> Numbers:
        """Of `("storage", type, key, device, count)`."""
        role, kind, key, *_ = pid
        if role != "storage" or kind not in STORAGES:
            raise Refused("its pickle refers to something that is no storage")
        return Numbers(STORAGES[kind], str(key))
