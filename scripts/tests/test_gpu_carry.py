"""What a machine with a GPU needs for its check is carried there in parts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from program_files import program

SCRIPTS = Path(__file__).resolve().parents[1]


def carry(tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """What is carried of a package with a file that cannot be packed small."""
    package = tmp_path / "model"
    package.mkdir(exist_ok=True)
    (package / "manifest.json").write_text("{}")
    (package / "model.onnx").write_bytes(os.urandom(5 << 19))
    binary = program(tmp_path / "bin/duovec", "echo it runs")
    program(tmp_path / "standins/libnvinfer.so.11", "")
    words = ["--out", str(tmp_path / "out"), "--binary", str(binary), "--package", str(package)]
    words += ["--standins", str(tmp_path / "standins")]
    command = ["bash", str(SCRIPTS / "gpu_carry.sh"), *words, *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_is_carried_in_parts_is_whole_again(tmp_path: Path) -> None:
    done = carry(tmp_path, "--part-mib", "1")
    assert done.returncode == 0, done.stderr
    parts = sorted((tmp_path / "out").glob("part-*"))
    assert len(parts) >= 3
    assert max(part.stat().st_size for part in parts) <= 1 << 20
    unpack = ["sh", str(tmp_path / "out/unpack.sh"), str(tmp_path / "there")]
    subprocess.run(unpack, check=True, capture_output=True)
    there = tmp_path / "there"
    model = (there / "engines/model/model.onnx").read_bytes()
    assert model == (tmp_path / "model/model.onnx").read_bytes()
    for carried in ["third_party/standins/libnvinfer.so.11", "tests/fixtures/tiny/manifest.json"]:
        assert (there / carried).exists()
    ran = subprocess.run([there / "target/release/duovec"], capture_output=True, check=True)
    assert ran.stdout == b"it runs\n"
    helped = subprocess.run([there / "scripts/gpu_check.sh", "--help"], capture_output=True)
    assert helped.returncode == 0, helped.stderr
    parts[1].write_bytes(parts[1].read_bytes()[:-1])
    again = subprocess.run(unpack, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "a part is missing or damaged" in again.stderr


def test_parts_of_different_packings_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/part-000").write_text("old")
    done = carry(tmp_path)
    assert done.returncode == 1
    assert "is not empty" in done.stderr
