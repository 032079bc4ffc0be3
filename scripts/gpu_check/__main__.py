"""What scripts/gpu_check.sh runs."""

import argparse
import signal
import subprocess
import sys
from pathlib import Path

from gpu_check.checks import Checks
from gpu_check.libraries import ROOT, cuda_folder, nvidia_smi
from gpu_check.programs import FLAVOURS
from gpu_check.report import Report

#: How long the binary may take to tell its version.
VERSION_SECONDS_MAX = 60


def arguments() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh", description=__doc__)
    parser.add_argument(
        "--flavour",
        choices=FLAVOURS,
        help="[default: tensorrt when its library opens, else tensorrt-rtx]",
    )
    parser.add_argument("--package", type=Path, action="append")
    parser.add_argument(
        "--library-dir",
        type=Path,
        help="[default: third_party/tensorrt/lib, third_party/tensorrt-rtx/lib, or where the "
        "loader looks]",
    )
    parser.add_argument(
        "--cuda-library-dir",
        type=Path,
        help="[default: third_party/cuda/lib, or the one there that suits the driver]",
    )
    parser.add_argument(
        "--standins",
        type=Path,
        default=ROOT / "third_party/standins",
        help="folder of what scripts/gpu_standins.sh builds",
    )
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/duovec")
    parser.add_argument("--seconds", type=float, default=60, help="of each load")
    parser.add_argument("--limit", type=float, default=None, help="seconds of the whole check")
    parser.add_argument("--report", type=Path, default=Path("gpu-report.md"))
    typed = parser.parse_args()
    typed.package = typed.package or [ROOT / "engines/multilingual-e5-small"]
    typed.cuda_library_dir = typed.cuda_library_dir or cuda_folder(nvidia_smi())
    # A name without a folder is a file here, and no program of PATH.
    typed.binary = typed.binary.absolute()
    wrong = what_is_wrong(typed)
    if wrong:
        parser.exit(2, f"duovec: {wrong}\n")
    return typed


def what_is_wrong(typed: argparse.Namespace) -> str | None:
    """Why nothing can be checked with these arguments."""
    for package in typed.package:
        if not (package / "manifest.json").is_file():
            return f"--package: {package} is no package: it has no manifest.json"
    named = {"--library-dir": typed.library_dir, "--cuda-library-dir": typed.cuda_library_dir}
    for name, folder in named.items():
        if folder and not folder.is_dir():
            return f"{name}: {folder} is no folder"
    if not typed.report.absolute().parent.is_dir():
        return f"--report: the folder of {typed.report} is not there"
    if not typed.binary.is_file():
        return f"{typed.binary} is not there: build it, or name another with --binary"
    try:
        done = subprocess.run(
            [typed.binary, "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"--binary: {typed.binary} cannot be run: {error}"
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return f"--binary: {typed.binary} cannot be run: {said}"
    return None


def main() -> int:
    """Checks, and says in the exit code whether all is well."""
    typed = arguments()
    # A server that was started must end, also when this is told to.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    report = Report(typed.report, "duovec with TensorRT on this machine")
    return 0 if Checks(typed, report).all() else 1


if __name__ == "__main__":
    sys.exit(main())
