"""Runs export_onnx.py and looks at what it made."""

import hashlib
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import export_snapshots as snapshots

import export_onnx
from default_package.command import PACKAGE_LOCK, digest

FOLDERS = TemporaryDirectory()
"""Of models with random weights, until the tests end."""


def random_model(seed: int = 7, **changes: int) -> list[str]:
    """Arguments that name a model of seeded weights, whose sizes have these changes."""
    sizes = replace(snapshots.SIZES, **{"positions": 120} | changes)
    name = "-".join(map(str, (seed, *sorted(changes.items()))))
    folder = Path(FOLDERS.name) / name / "random"
    snapshots.write(folder, sizes=sizes, seed=seed)
    return ["--model", str(folder)]


RANDOM = random_model()


def run(*arguments: object) -> int:
    return export_onnx.main([*map(str, arguments)])


def refusal(*arguments: object) -> str:
    """What the command says when it refuses, on stderr alone."""
    with redirect_stderr(StringIO()) as said, redirect_stdout(StringIO()) as out:
        assert run(*arguments) == 1
    assert out.getvalue() == ""
    return said.getvalue()


def made(out: Path, *arguments: object) -> dict:
    """The manifest of the package that the command puts at `out`."""
    assert run(*arguments, "--out", out) == 0
    return manifest_of(out)


def unchecked(model: Path, *flags: object) -> dict:
    """The manifest of the package beside a model, which is not run."""
    words = ["--model", model, "--precision", "fp32", "--skip-verify", *flags]
    return made(model.with_name("out"), *words)


def refused(model: Path, *flags: object) -> str:
    """Why no package is made beside a model."""
    return refusal("--model", model, "--out", model.with_name("out"), *flags)


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def digests(folder: Path) -> dict[str, str]:
    """Of a package's files; the one that a process locks which adds to it is none of them."""
    return {path.name: digest(path) for path in folder.iterdir() if path.name != PACKAGE_LOCK}


def check_files(folder: Path) -> None:
    """The manifest lists exactly what lies there."""
    manifest = manifest_of(folder)
    assert digests(folder).keys() - {"manifest.json"} == manifest["files"].keys()
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes()
        assert entry == {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
