"""Which of NVIDIA's libraries this machine has, and so which flavour is checked."""

import copy
import re
import subprocess
from contextlib import suppress
from pathlib import Path

from gpu_check import machine
from gpu_check.programs import FLAVOURS, Programs
from gpu_check.report import SkipSection

ROOT = Path(__file__).resolve().parents[2]
#: Its check takes a moment, whatever the libraries are.
PACKAGE = ROOT / "tests/fixtures/tiny"
CUDA = ("third_party/cuda/lib", "third_party/cuda-12/lib")


def nvidia_smi() -> str:
    """What it says of the driver; nothing where it is not, or says nothing."""
    with suppress(SkipSection, subprocess.TimeoutExpired):
        return machine.query().stdout
    return ""


def cuda_folder(smi: str) -> Path | None:
    """The fetched runtime that suits the driver, by what nvidia-smi says."""
    found = [ROOT / part for part in CUDA if (ROOT / part).is_dir()]
    version = re.search(r"CUDA Version: *(\d+)", smi)
    if version and version.group(1) == "12":
        found = [folder for folder in found if list(folder.glob("libcudart.so.12*"))]
    return found[0] if found else None


def folders(named: Path | None) -> list[Path | None]:
    """Where TensorRT may be: the named folder, else those here and where the loader looks."""
    if named:
        return [named]
    here = [ROOT / "third_party" / flavour / "lib" for flavour in FLAVOURS]
    return [*(folder for folder in here if folder.is_dir()), None]


def choose(checks: Programs) -> None:
    """Takes the flavour whose library opens: of both TensorRT, since TensorRT-RTX knows no
    data-centre GPU."""
    wanted = [checks.typed.flavour] if checks.typed.flavour else FLAVOURS
    opened: dict[str, tuple[str, Path | None]] = {}
    reasons = []
    for folder in folders(checks.typed.library_dir):
        probe = copy.copy(checks)
        probe.library_dir = folder
        # The fake engine loads no model: only the lines before the engine's are of use here.
        done = probe.run("check", str(PACKAGE), "--engine", "fake", "--log-level", "off")
        for flavour in wanted:
            found = re.search(rf"^ok +library {flavour}: (.*)$", done.stdout, re.MULTILINE)
            if found:
                opened.setdefault(flavour, (found.group(1), folder))
        reasons += re.findall(r"^(?:none|BAD) +(library tensorrt.*)$", done.stdout, re.MULTILINE)
        reasons += done.stderr.strip().splitlines()
        if wanted[0] in opened:
            break
    for flavour in wanted:
        if flavour in opened:
            checks.flavour = flavour
            version, checks.library_dir = opened[flavour]
            place = checks.library_dir or "where the loader looks"
            checks.report.say(f"Library: {flavour} {version}, {place}")
            return
    checks.report.say(f"No library of {' or '.join(wanted)} opens here:")
    checks.report.code("\n".join(reasons))
