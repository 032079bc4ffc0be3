"""A machine with a GPU for tests of scripts: stand-ins for driver, wheels, cargo and binary."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from program_files import SCRIPTS, program, run

# What it serves with is told by flags and by variables.
BINARY = """#!/bin/sh
shift
echo "serves: $*"
for name in BUILD_PLAN TENSORRT_LIBRARY_DIR CUDA_LIBRARY_DIR PACKAGE \\
    DEFAULT_TENSORRT_LIBRARY_DIR DEFAULT_CUDA_LIBRARY_DIR; do
    eval "value=\\$DUOVEC_$name"
    [ -z "$value" ] || echo "$name=$value"
done
"""
#: More than a pipe holds, with a line in the middle.
LONG_LIST = "yes '\tlibother.so.1 (libc6,x86-64) => /lib/other' | head -n 3000"
CARGO = """
mkdir -p target/release
cp "$BINARY_TEXT" target/release/duovec
chmod +x target/release/duovec
echo "$*" >>cargo.log
"""


def shell(repository: Path, code: str, **variables: str) -> str:
    """What a line of shell prints with the scripts' functions."""
    sourced = f". {repository}/scripts/lib/setup.sh; . {repository}/scripts/lib/tensorrt.sh; {code}"
    done = run("bash", "-c", sourced, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(root: Path, script: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of `make_repository`."""
    machine = root.parent
    variables = {"PATH": f"{machine / 'tools'}:{os.environ['PATH']}"}
    variables |= {"DUOVEC_CACHE_DIR": str(machine / "cache")}
    variables |= {"BINARY_TEXT": str(machine / "binary"), "CARGO_TARGET_DIR": str(root / "target")}
    return run("bash", root / "scripts" / script, *words, cwd=root, **variables, **more)


def make_repository(tmp_path: Path) -> Path:
    """A repository with all that is made already, but no binary with TensorRT."""
    root = tmp_path / "repository"
    for name in ("serve.sh", "build_engine.sh", "lib", "model_export/flags.py"):
        place = root / "scripts" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if name == "lib" else shutil.copy)(SCRIPTS / name, place)
    log = f'echo "$*" >>{tmp_path}/python.log'
    python = program(tmp_path / "python", f'{log}\nexec {sys.executable} "$@"')
    for name, made in {
        "setup.sh": f"ensure_venv() {{ PYTHON={python}; }}",
        "tensorrt.sh": "ensure_tensorrt() { :; }",
    }.items():
        with (root / "scripts/lib" / name).open("a") as file:
            file.write(f"{made}\n")
    (root / "docs").mkdir()
    shutil.copy(SCRIPTS.parent / "docs/settings.md", root / "docs")
    package = root / "engines/model"
    package.mkdir(parents=True)
    (package / "model.fp16.onnx").write_text("a graph")
    (package / "manifest.json").touch()
    program(tmp_path / "tools/ldconfig", "exit 0")
    program(tmp_path / "tools/cargo", CARGO)
    (tmp_path / "binary").write_text(BINARY)
    return root
