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
for name in BUILD_PLAN TENSORRT_LIBRARY_DIR CUDA_LIBRARY_DIR PACKAGE; do
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
    """Runs a script of `make_repository`, with what was fetched for the driver there."""
    machine = root.parent
    path = f"{machine / 'tools'}:{os.environ['PATH']}"
    stamp = shell(root, "rtx_wheel", PATH=path)
    (root / "third_party/tensorrt-rtx/.stamp").write_text(stamp)
    variables = {"PATH": path, "DUOVEC_CACHE_DIR": str(machine / "cache")}
    variables |= {"BINARY_TEXT": str(machine / "binary"), "CARGO_TARGET_DIR": str(root / "target")}
    return run("bash", root / "scripts" / script, *words, cwd=root, **variables, **more)


def make_repository(tmp_path: Path) -> Path:
    """A repository with all that is made already, but no binary with TensorRT."""
    root = tmp_path / "repository"
    (root / "scripts/lib").mkdir(parents=True)
    for name in ("serve.sh", "build_engine.sh", "requirements.txt"):
        shutil.copy(SCRIPTS / name, root / "scripts" / name)
    for file in (SCRIPTS / "lib").glob("*.sh"):
        shutil.copy(file, root / "scripts/lib" / file.name)
    (root / "scripts/model_export").mkdir()
    shutil.copy(SCRIPTS / "model_export/flags.py", root / "scripts/model_export")
    (root / "docs").mkdir()
    shutil.copy(SCRIPTS.parent / "docs/settings.md", root / "docs")
    stamps = {
        "headers": "$CRATE_NEWEST $CRATE_10 $CRATE_OLDEST_11",
        "cuda": "$WHEEL_CUDART $WHEEL_CUDA_CRT",
        "cuda-12": "$WHEEL_CUDART_12",
        "tensorrt-rtx": "$(rtx_wheel)",
        "libclang": "$WHEEL_LIBCLANG",
    }
    wanted = " ".join(f'"{stamp}"' for stamp in stamps.values())
    listed = f"(python3 -V && cat {root}/scripts/requirements.txt) | sha256sum | cut -c1-16"
    # In one shell: starting it takes most of the time of a test.
    *texts, name = shell(root, f'printf "%s\\n" {wanted}; {listed}').splitlines()
    for part, text in zip(stamps, texts, strict=True):
        (root / "third_party" / part).mkdir(parents=True)
        (root / "third_party" / part / ".stamp").write_text(f"{text}\n")
    package = root / "engines/model"
    package.mkdir(parents=True)
    (package / "model.fp16.onnx").write_text("a graph")
    (package / "manifest.json").touch()
    venv = tmp_path / "cache" / f"venv-{name}"
    log = f'echo "$*" >>{tmp_path}/python.log'
    program(venv / "bin/python", f'{log}\nexec {sys.executable} "$@"')
    libraries = venv / "lib/python3/site-packages/openvino/libs"
    libraries.mkdir(parents=True)
    (libraries / "libopenvino_c.so").touch()
    program(tmp_path / "tools/ldconfig", "exit 0")
    program(tmp_path / "tools/cargo", CARGO)
    (tmp_path / "binary").write_text(BINARY)
    return root
