"""What scripts/gpu_check.sh refuses at once, and which libraries it takes where it was carried."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from program_files import program

from gpu_check import libraries

SCRIPTS = Path(__file__).resolve().parents[1]
#: A binary that opens what is in the folder that it is told, and whose engine has no GPU.
BINARY = """
echo "$@" >>"$CALLS"
[ "$1" != check ] || while [ $# -gt 0 ]; do
    if [ "$1" = --tensorrt-library-dir ]; then
        [ ! -e "$2/libnvinfer.so.11" ] || echo "ok    library tensorrt: 11.4.0"
        [ ! -e "$2/libtensorrt_rtx.so.1" ] || echo "ok    library tensorrt-rtx: 1.7.1"
    fi
    shift
done
[ "$1" = --version ]
"""


def carry(tmp_path: Path, *libraries: str) -> subprocess.CompletedProcess[str]:
    """Carries a package and libraries of these names."""
    package = tmp_path / "a model"
    package.mkdir()
    (package / "manifest.json").write_text('{"hidden_size": 384}')
    for name in (
        *libraries,
        "libz.so.1",
        "libcudart.so.13",
        "cuda/libcudart.so.13",
        "standins/libother.so.1",
    ):
        program(tmp_path / "lib" / name, "")
    words = ["--out", tmp_path / "out", "--package", package, "--library-dir", tmp_path / "lib"]
    words += ["--binary", program(tmp_path / "bin/duovec", BINARY)]
    words += ["--cuda-library-dir", tmp_path / "lib/cuda", "--standins", tmp_path / "lib/standins"]
    command = ["bash", SCRIPTS / "gpu_carry.sh", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("libraries", "flavour"),
    [
        (["libnvinfer.so.11", "libnvonnxparser.so.11"], "tensorrt"),
        (["libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1"], "tensorrt-rtx"),
        (["libnvinfer.so.11", "libtensorrt_rtx.so.1"], "tensorrt"),
    ],
)
def test_carried_libraries_are_taken_by_the_printed_command(
    tmp_path: Path, libraries: list[str], flavour: str
) -> None:
    done = carry(tmp_path, *libraries)
    assert done.returncode == 0, done.stderr
    unpack = ["sh", "out/unpack.sh", "there it is"]
    unpacked = subprocess.run(unpack, cwd=tmp_path, capture_output=True, text=True, check=True)
    printed = unpacked.stdout.splitlines()[-1]
    calls = tmp_path / "calls"
    environment = os.environ | {"CALLS": str(calls)}
    ran = subprocess.run(["sh", "-c", printed], env=environment, capture_output=True, text=True)
    there = tmp_path / "there it is"
    report = (there / "gpu-report.md").read_text()
    assert ran.returncode == 1, ran.stderr
    folder = there / "third_party" / flavour / "lib"
    assert f"\nLibrary: {flavour} 1" in report
    assert f", {folder}\n" in report
    assert not (folder / "libz.so.1").exists()
    assert (folder / "libcudart.so.13").exists() == (flavour == "tensorrt")
    assert "did not come to its end" not in report
    plan = f"check engines/a model --engine {flavour} --log-level warn"
    cuda = there / "third_party/cuda/lib"
    named = f"{plan} --tensorrt-library-dir {folder} --cuda-library-dir {cuda}\n"
    assert named in calls.read_text()


def test_a_folder_without_libraries_of_tensorrt_is_not_carried(tmp_path: Path) -> None:
    done = carry(tmp_path)
    assert done.returncode == 1
    assert "has neither libnvinfer.so.* nor libtensorrt_rtx.so.*" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        ({"--package": "nowhere"}, "--package: nowhere is no package: it has no manifest.json"),
        ({"--library-dir": "nowhere"}, "--library-dir: nowhere is no folder"),
        ({"--report": "nowhere/report.md"}, "--report: the folder of nowhere/report.md is not"),
        ({"--binary": "nowhere"}, "/nowhere is not there: build it, or name another with --bin"),
        ({"--binary": "text"}, "/text cannot be run: [Errno 13] Permission denied"),
        ({"--binary": "fails"}, "/fails cannot be run: libc is too old"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    tmp_path: Path, wrong: dict[str, str], refusal: str
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/manifest.json").write_text("{}")
    (tmp_path / "text").write_text("no program")
    program(tmp_path / "fails", "echo libc is too old >&2; exit 1")
    program(tmp_path / "runs", "")
    words = {"--package": "model", "--binary": "runs", "--report": "report.md"} | wrong
    command = ["bash", SCRIPTS / "gpu_check.sh", *(word for pair in words.items() for word in pair)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("duovec: ")
    assert done.stderr.count("\n") == 1
    assert refusal in done.stderr
    assert not (tmp_path / "report.md").exists()


def test_without_any_library_the_report_says_so(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/manifest.json").write_text("{}")
    lacking = "echo 'none  library tensorrt: no such file'; exit 1"
    binary = program(tmp_path / "bin/duovec", f'[ "$1" = --version ] || {{ {lacking}; }}')
    words = ["--package", "model", "--binary", binary, "--library-dir", tmp_path]
    command = ["bash", SCRIPTS / "gpu_check.sh", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    report = (tmp_path / "gpu-report.md").read_text()
    assert "No library of tensorrt or tensorrt-rtx opens here:" in report
    assert "library tensorrt: no such file" in report


def test_the_runtime_suits_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "ROOT", tmp_path)
    assert libraries.cuda_folder("CUDA Version: 13.0") is None
    newest, older = (tmp_path / part for part in libraries.CUDA)
    newest.parent.mkdir(parents=True)
    older.parent.mkdir()
    program(newest / "libcudart.so.13", "")
    assert libraries.cuda_folder("") == newest
    assert libraries.cuda_folder("CUDA Version: 12.4") is None
    program(older / "libcudart.so.12", "")
    assert libraries.cuda_folder("CUDA Version: 12.4") == older
    assert libraries.cuda_folder("| CUDA Version: 13.0 |") == newest
    # What was carried has both.
    program(newest / "libcudart.so.12", "")
    assert libraries.cuda_folder("CUDA Version: 12.4") == newest
