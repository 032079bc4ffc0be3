"""What scripts/gpu_check.sh runs."""

import argparse
import signal
import subprocess
import sys
from pathlib import Path

from gpu_check.checks import ROOT, Checks
from gpu_check.report import Report

#: How long `duovec check` may take to say which libraries open.
FLAVOUR_SECONDS_MAX = 300


def arguments() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh", description=__doc__)
    parser.add_argument(
        "--flavour",
        choices=["tensorrt", "tensorrt-rtx"],
        help="[default: tensorrt when its library opens, else tensorrt-rtx]",
    )
    parser.add_argument("--package", type=Path, action="append")
    parser.add_argument("--library-dir", type=Path, default=None)
    parser.add_argument("--cuda-library-dir", type=Path, default=None)
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
    if not typed.binary.exists():
        parser.error(f"{typed.binary} is not there: build it, or name another with --binary")
    typed.flavour = typed.flavour or flavour(typed)
    fetched = {"library_dir": "tensorrt-rtx", "cuda_library_dir": "cuda"}
    for name, part in fetched.items():
        folder = ROOT / "third_party" / part / "lib"
        rtx = typed.flavour == "tensorrt-rtx"
        if getattr(typed, name) is None and rtx and folder.is_dir():
            setattr(typed, name, folder)
    return typed


def flavour(typed: argparse.Namespace) -> str:
    """The flavour whose library this machine has: TensorRT-RTX knows no data-centre GPU."""
    command = [str(typed.binary), "check", str(typed.package[0]), "--log-level", "off"]
    if typed.library_dir:
        command += ["--tensorrt-library-dir", str(typed.library_dir)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=FLAVOUR_SECONDS_MAX, check=False
    )
    return "tensorrt" if "ok    library tensorrt:" in done.stdout else "tensorrt-rtx"


def main() -> int:
    """Checks, and says in the exit code whether all is well."""
    typed = arguments()
    # A server that was started must end, also when this is told to.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    report = Report(typed.report, f"duovec with {typed.flavour} on this machine")
    return 0 if Checks(typed, report).all() else 1


if __name__ == "__main__":
    sys.exit(main())
