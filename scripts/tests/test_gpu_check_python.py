"""scripts/gpu_check.sh runs with the Python of machines with GPUs, which is often 3.10."""

import sys
from pathlib import Path

from program_files import SCRIPTS, program, run

#: A module, a name, and a function that the oldest Python lacks.
LATER = "import hashlib, tomllib\nfrom typing import Self\nhashlib.file_digest\n"


def told(folder: Path, *words: str) -> str:
    """What mypy says of that code, and of what it imports, for the oldest Python."""
    mypy = [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "cache")]
    return run(*mypy, "--python-version", "3.10", *words).stdout


def test_the_check_uses_nothing_that_python_3_10_lacks(tmp_path: Path) -> None:
    assert told(tmp_path, "-p", "gpu_check").startswith("Success: no issues found")


def test_what_a_later_python_has_is_seen(tmp_path: Path) -> None:
    assert "Found 3 errors" in told(tmp_path, "-c", LATER)
    assert "error: " in told(tmp_path, "-c", "try:\n    pass\nexcept* OSError:\n    pass\n")


def test_an_older_python_is_refused_in_one_line(tmp_path: Path) -> None:
    old = 'if [ "$1" = --version ]; then echo Python 3.9.2; exit; fi; [ "$1" != -c ]'
    python = program(tmp_path / "python3", old)
    done = run("bash", SCRIPTS / "gpu_check.sh", PYTHON=str(python))
    assert done.returncode == 1
    refusal = f"duovec: {python} is Python 3.9.2: name Python 3.10 or later with PYTHON=FILE\n"
    assert done.stderr == refusal
