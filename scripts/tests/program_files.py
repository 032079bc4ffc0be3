"""Programs in tests: those that stand in for others, and scripts that are run to their end."""

import os
import subprocess
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]


def run(*command: str | Path, cwd: Path = SCRIPTS, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with some variables more."""
    environment = os.environ | more
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def program(path: Path, text: str) -> Path:
    """A shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def shell(repository: Path, code: str, **variables: str) -> str:
    """What a line of shell prints with the scripts' functions."""
    sourced = f". {repository}/scripts/lib/setup.sh; . {repository}/scripts/lib/tensorrt.sh; {code}"
    done = run("bash", "-c", sourced, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout
