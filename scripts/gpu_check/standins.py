"""The real CUDA runtime and driver under a stand-in for TensorRT that runs kernels of its own.

So a machine with a GPU and without TensorRT shows what a session does with CUDA: captures, streams,
copies, graphs, and a kernel that uses an address that is not there. The numbers that come back are
right or wrong; how long a run takes is what the stand-in is told, so the times tell of launches and
copies, and nothing of models.
"""

from __future__ import annotations

import ctypes
import hashlib
import http.client
import json
import math
import re
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gpu_check.libraries import PACKAGE
from gpu_check.report import SkipSection

if TYPE_CHECKING:
    from gpu_check.checks import Checks

TITLE = "CUDA under a stand-in for TensorRT"
LIBRARY = "libnvinfer.so.11"
#: Kernels of a run, and sizes like those of the default package.
KERNELS = 64
HIDDEN = 384
TOKENS_MAX = 512
PROFILES = {
    "latency": {"rows": (1, 1, 8), "length": (1, 32, 512)},
    "throughput": {"rows": (1, 32, 64), "length": (1, 64, 512)},
}
ENDS = ("min", "opt", "max")
SCRATCH_BYTES = 1 << 20
#: The driver compiles the kernel for its GPU, whichever it is.
CAPABILITIES = ["7.5", "8.0", "8.6", "8.7", "8.8", "8.9", "9.0", "10.0", "10.3", "11.0"]
CAPABILITIES += ["12.0", "12.1"]
#: What `duovec check` says where CUDA cannot be used at all.
LACKING = re.compile(r"^BAD +((?:library cuda|driver|device): .*)$", re.MULTILINE)
WORKERS = 4
SHAPES = "1x32,1x128,8x128,64x128"
#: The warm-up takes fewer plain runs when the size of batches is given, see `fault`.
PLAIN_RUNS = 1000
BATCH_TOKENS = "8192"
FAULT_SECONDS_MAX = 60.0
MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def check_all(checks: Checks) -> None:
    """Sections of their own in the report; one that says why when there is no GPU."""
    report = checks.report
    with ExitStack() as stack:
        sections: dict[str, Callable[[Path], None]] = {}
        package = Path()
        with report.section(f"{TITLE}: rows"):
            checks.limit.seconds()
            folder = TemporaryDirectory(prefix="duovec-", ignore_cleanup_errors=True)
            package = Path(stack.enter_context(folder))
            own = prepare(checks, package)
            sections = parts(own) if own else {}
        for name, part in sections.items():
            with report.section(f"{TITLE}: {name}"):
                checks.limit.seconds()
                part(package)


def prepare(checks: Checks, folder: Path) -> Checks | None:
    """Checks of a package of its own in the folder; nothing when it gives wrong numbers."""
    standins: Path = checks.typed.standins
    library = standins / LIBRARY
    if not library.exists():
        raise SkipSection(f"{library} is not there: scripts/gpu_standins.sh builds it")
    make_package(folder, library)
    changed = {"flavour": "tensorrt", "library_dir": standins, "package": [folder]}
    own = type(checks)(Namespace(**vars(checks.typed) | changed), checks.report)
    own.limit = checks.limit
    done = own.run("check", str(folder), "--engine", "tensorrt", "--log-level", "warn")
    words = done.stdout + done.stderr
    lacking = LACKING.search(words)
    if lacking:
        raise SkipSection(f"no GPU can be used here: {lacking.group(1)}")
    if checks.report.check(done.returncode == 0, "its kernels give the canary's numbers here"):
        return own
    checks.report.code(words)
    return None


def parts(own: Checks) -> dict[str, Callable[[Path], None]]:
    """The sections behind the first, in their order."""
    return {
        "load": own.served,
        "captures beside each other": lambda package: captures(own, package),
        "graphs": own.graphs,
        "workers": own.workers,
        "start": own.start,
        # What launches and copies take: the kernels themselves have almost nothing to do.
        "shapes": lambda package: own.shapes(package, SHAPES),
        "a kernel that faults": lambda package: fault(own, package),
        "memory accesses": own.sanitizer,
    }


def captures(own: Checks, package: Path) -> None:
    """All workers capture at the same time, each on its own thread, beside the others' runs."""
    with own.serve(package, "--workers-per-device", str(WORKERS)) as server:
        figures = server.figures()
        captured, refused = figures.get("captured_graphs", 0), figures.get("refused_graphs", 0)
        own.report.check(
            captured > 0 and refused == 0,
            f"{WORKERS} workers captured {captured} graphs, {refused} of them could not",
        )
        status, deep = server.ask("/health/deep")
        own.report.check(status == 200, f"every worker gives the canary's numbers: {deep}")
        own.stop(server)


def fault(own: Checks, package: Path) -> None:
    """A kernel writes to address 0: the process must say so and end, and its port with it."""
    faulty = own.with_faults(f"sticky={PLAIN_RUNS}")
    # Nothing is measured at the start: the fault is counted in runs.
    more = ("--cuda-graph-tokens", "0", "--max-batch-tokens", BATCH_TOKENS)
    with faulty.serve(package, *more, "--workers-per-device", "2") as server:
        seen: Counter[int] = Counter()
        give_up = time.monotonic() + own.limit.seconds(FAULT_SECONDS_MAX)
        while server.process.poll() is None and time.monotonic() < give_up:
            try:
                seen[server.ask("/v1/embeddings", input="hello world")[0]] += 1
            except (OSError, http.client.HTTPException):
                break
        code = server.process.wait(max(1.0, give_up - time.monotonic()))
        answers = ", ".join(f"{count} x {status}" for status, count in sorted(seen.items()))
        own.report.check(
            code == 1 and seen[200] > 0 and seen.keys() <= {200, 500, 503},
            f"after a kernel that faults the server ends with exit code {code}; its answers were "
            f"{answers}",
        )
        own.report.code(server.words())


def make_package(folder: Path, library: Path) -> None:
    """The fixture's package with a plan of the stand-in's, and the canary's numbers it gives."""
    for file in PACKAGE.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((folder / "manifest.json").read_text())
    text = plan_text()
    (folder / "standin.plan").write_text(text)
    opened = ctypes.CDLL(str(library))
    number, build = opened.getInferLibVersion(), opened.getInferLibBuildVersion()
    manifest["hidden_size"], manifest["max_input_tokens"] = HIDDEN, TOKENS_MAX
    manifest["plans"] = [
        {
            "file": "standin.plan",
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "bytes": len(text),
            "flavour": "tensorrt",
            "version": f"{number // 10000}.{number // 100 % 100}.{number % 100}.{build}",
            "model_file": "model.onnx",
            "model_sha256": manifest["files"]["model.onnx"]["sha256"],
            "precision": "f16",
            "compute_capabilities": CAPABILITIES,
            "same_compute_capability": True,
            "build_seconds": 1.0,
            "profiles": [
                {"name": name} | {k: dict(zip(ENDS, of, strict=True)) for k, of in sizes.items()}
                for name, sizes in PROFILES.items()
            ],
        }
    ]
    canary = manifest["canary"]
    canary["dense"] = dense(canary["token_ids"])
    canary["sparse"] = sparse(canary["token_ids"], manifest["sparse"]["dropped_token_ids"])
    (folder / "manifest.json").write_text(json.dumps(manifest))


def plan_text() -> str:
    """A plan of the stand-in's; it has a kernel for each layer."""
    lines = ["duovec stand-in plan 1", "flavour tensorrt"]
    lines += [f"input {name} int32 -1 -1" for name in ("input_ids", "positions", "segments")]
    lines += ["input span_weights float32 -1 -1 -1"]
    lines += [f"output dense float32 -1 -1 {HIDDEN}", "output token_weights float32 -1 -1"]
    for profile in PROFILES.values():
        sizes = [size for pair in zip(*profile.values(), strict=True) for size in pair]
        lines.append(" ".join(map(str, ["profile", *sizes])))
    lines += [f"scratch {SCRATCH_BYTES}" for _ in PROFILES]
    lines += [f"layer kernel_{number}" for number in range(KERNELS)]
    return "\n".join(lines) + "\n"


def mix(state: int) -> int:
    """One step of splitmix64."""
    state = (state + STEP) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def dense(ids: list[int]) -> list[float]:
    """The vector that cpp/testing/standin_kernel.h gives a text, to f32's precision."""
    state = STEP
    for one in ids:
        state = mix(state ^ one)
    row = []
    for _ in range(HIDDEN):
        state = mix(state)
        row.append((state >> 40) / (1 << 23) - 1)
    length = math.sqrt(sum(value * value for value in row))
    return [value / length for value in row]


def sparse(ids: list[int], dropped: list[int]) -> list[tuple[int, float]]:
    """The lexical weights: of each id the largest, without zeros."""
    best: dict[int, float] = {}
    for position, one in enumerate(ids):
        mixed = mix((one << 20) ^ position)
        weight = 0.0 if mixed & 3 == 0 else (mixed >> 40) / (1 << 25)
        if one not in dropped and weight > best.get(one, 0.0):
            best[one] = weight
    return sorted(best.items())
