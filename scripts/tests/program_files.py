"""Programs that stand in for others in tests."""

from __future__ import annotations

from pathlib import Path


def program(path: Path, text: str) -> Path:
    """A shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
