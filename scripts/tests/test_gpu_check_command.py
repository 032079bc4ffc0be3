"""What scripts/gpu_check.sh refuses at once, which libraries it takes, and which Python.

Machines with GPUs often have 3.10.
"""

import sys
from pathlib import Path

import pytest
from program_files import SCRIPTS, program, run

from gpu_check import libraries


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
    told = [word for pair in words.items() for word in pair]
    done = run("bash", SCRIPTS / "gpu_check.sh", *told, cwd=tmp_path)
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
    done = run("bash", SCRIPTS / "gpu_check.sh", *words, cwd=tmp_path)
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
    # A folder may have both.
    program(newest / "libcudart.so.12", "")
    assert libraries.cuda_folder("CUDA Version: 12.4") == newest


def test_the_check_uses_nothing_that_python_3_10_lacks(tmp_path: Path) -> None:
    mypy = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), "--python-version", "3.10"]
    done = run(*mypy, "-p", "gpu_check", MYPYPATH="../tests/clients")
    assert done.stdout.startswith("Success: no issues found"), done.stdout


def test_an_older_python_is_refused_in_one_line(tmp_path: Path) -> None:
    old = 'if [ "$1" = --version ]; then echo Python 3.9.2; exit; fi; [ "$1" != -c ]'
    python = program(tmp_path / "python3", old)
    done = run("bash", SCRIPTS / "gpu_check.sh", PYTHON=str(python))
    assert done.returncode == 1
    refusal = f"duovec: {python} is Python 3.9.2: name Python 3.10 or later with PYTHON=FILE\n"
    assert done.stderr == refusal
