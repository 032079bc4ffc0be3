"""What scripts/gpu_check.sh runs."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from gpu_check import golden, load
from gpu_check.report import Report
from gpu_check.server import Server

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/multilingual-e5-small.json"
#: A build of the largest model takes a minute, the check of its files some seconds.
COMMAND_SECONDS_MAX = 900


def arguments() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh", description=__doc__)
    parser.add_argument("--flavour", choices=["tensorrt", "tensorrt-rtx"], default="tensorrt-rtx")
    parser.add_argument("--package", type=Path, action="append")
    parser.add_argument("--library-dir", type=Path, default=None)
    parser.add_argument("--cuda-library-dir", type=Path, default=None)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/duovec")
    parser.add_argument("--seconds", type=float, default=60, help="of the served load")
    parser.add_argument("--report", type=Path, default=Path("gpu-report.md"))
    typed = parser.parse_args()
    typed.package = typed.package or [ROOT / "engines/multilingual-e5-small"]
    fetched = {"library_dir": "tensorrt-rtx", "cuda_library_dir": "cuda"}
    for name, part in fetched.items():
        folder = ROOT / "third_party" / part / "lib"
        rtx = typed.flavour == "tensorrt-rtx"
        if getattr(typed, name) is None and rtx and folder.is_dir():
            setattr(typed, name, folder)
    return typed


class Checks:
    """All checks of one flavour."""

    def __init__(self, typed: argparse.Namespace) -> None:
        self.typed = typed
        self.report = Report()
        self.libraries = []
        if typed.library_dir:
            self.libraries += ["--tensorrt-library-dir", str(typed.library_dir)]
        if typed.cuda_library_dir:
            self.libraries += ["--cuda-library-dir", str(typed.cuda_library_dir)]

    def command(self, *words: str) -> list[str]:
        """The binary with the libraries' folders."""
        return [str(self.typed.binary), *words, *self.libraries]

    def run(self, *words: str) -> subprocess.CompletedProcess:
        """Runs the binary to its end."""
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )

    def all(self) -> bool:
        """Whether everything passed."""
        self.machine()
        for package in self.typed.package:
            if self.plan(package):
                self.graphs(package)
                self.shapes(package)
                self.served(package)
                self.sanitizer(package)
        self.report.write(self.typed.report, f"duovec with {self.typed.flavour} on this machine")
        return self.report.failed == 0

    def machine(self) -> None:
        """Hardware and versions."""
        self.report.section("Machine")
        self.report.say(f"{platform.machine()}, {os.cpu_count()} processor cores, {sys.platform}")
        smi = shutil.which("nvidia-smi")
        if smi is None:
            self.report.skip("nvidia-smi is not here")
            return
        fields = "index,name,compute_cap,driver_version,memory.total,clocks.max.sm,power.limit"
        done = subprocess.run(
            [smi, f"--query-gpu={fields}", "--format=csv"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.report.code(done.stdout + done.stderr)

    def plan(self, package: Path) -> bool:
        """Whether the package's plan runs here; builds one when there is none."""
        self.report.section(f"Package {package.name}")
        check = ("check", str(package), "--engine", self.typed.flavour, "--log-level", "warn")
        done = self.run(*check)
        if done.returncode != 0 and "no plan of" in done.stdout + done.stderr:
            self.report.code(done.stdout + done.stderr)
            built = self.run("build-engine", str(package), "--flavour", self.typed.flavour)
            self.report.code(built.stdout + built.stderr)
            self.report.check(built.returncode == 0, "a plan is built on this machine")
            done = self.run(*check)
        self.report.code(done.stdout + done.stderr)
        return self.report.check(
            done.returncode == 0,
            "library, driver, device and plan are well, and the canary gives its f32 numbers",
        )

    def bench(self, package: Path, *more: str) -> dict | None:
        """The report of `duovec bench`, or nothing when there is none."""
        done = self.run("bench", str(package), "--engine", self.typed.flavour, "--json", *more)
        if not done.stdout.strip():
            self.report.code(done.stderr)
            return None
        return json.loads(done.stdout)

    def graphs(self, package: Path) -> None:
        """Captured graphs against plain runs."""
        bench = self.bench(package, "--compare-graphs", "--no-table")
        if bench is None:
            self.report.check(False, "every bucket's graph gives what a plain run gives")
            return
        graphs = bench["graphs"]
        text = (
            f"{graphs['captured']} of {graphs['buckets']} buckets captured, largest difference to "
            f"a plain run {graphs['largest_difference']}, {graphs['time_ratio']:.2f} of its time"
        )
        self.report.check(graphs["equal"] and graphs["refused"] == 0, text)

    def shapes(self, package: Path) -> None:
        """The table of shapes beside the ceiling of matrix products."""
        bench = self.bench(package, "--ceiling")
        if bench is None:
            bench = self.bench(package)
            self.report.skip("the ceiling of matrix products could not be measured")
        if not self.report.check(bench is not None, "every shape is measured"):
            return
        ceiling = bench.get("ceiling")
        if ceiling:
            self.report.say(f"\nMatrix products reach {ceiling['teraflops']:.1f} TFLOP/s.")
        head = ["rows", "length", "median ms", "p99 ms", "compute ms", "tokens/s", "of the ceiling"]
        rows = [
            [
                str(one["rows"]),
                str(one["length"]),
                f"{one['median_ms']:.3f}",
                f"{one['p99_ms']:.3f}",
                f"{one['compute_ms']:.3f}",
                f"{one['tokens_per_s']:,.0f}",
                f"{one['of_ceiling']:.1%}" if "of_ceiling" in one else "",
            ]
            for one in bench["shapes"]
        ]
        self.report.table(head, rows)

    def served(self, package: Path) -> None:
        """The server: golden numbers, load, health, memory, end."""
        command = self.command("serve", "--package", str(package), "--engine", self.typed.flavour)
        try:
            server = Server(command)
        except RuntimeError as error:
            self.report.code(str(error))
            self.report.check(False, "the server starts")
            return
        try:
            self.report.check(True, f"the server is ready after {server.ready_seconds:.1f} s")
            self.golden(server, package)
            self.load(server)
            self.golden(server, package)
            status, deep = server.get("/health/deep")
            self.report.check(status == 200, f"the deep check passes after the load: {deep}")
            _, health = server.get("/health")
            self.report.code(json.dumps(health["tuning"], indent=1))
        finally:
            code = server.stop()
        self.report.check(code == 0, f"it drains and ends with exit code {code}")

    def golden(self, server: Server, package: Path) -> None:
        """Vectors against those of an independent f32 program, for the model that has them."""
        manifest = json.loads((package / "manifest.json").read_text())
        known = json.loads(GOLDEN.read_text())["model_id"] if GOLDEN.exists() else None
        if manifest["model_id"] != known:
            self.report.skip(f"golden numbers: there are none for {manifest['model_id']}")
            return
        tolerance = manifest["canary"]["tolerances"]["sparse_max_abs"]
        lowest, largest, count = golden.compare(server, GOLDEN)
        self.report.check(
            lowest >= golden.COSINE_MIN and largest <= tolerance,
            f"golden numbers of {count} texts against f32: lowest cosine {lowest:.6f}, largest "
            f"difference of a lexical weight {largest:.4f}",
        )

    def load(self, server: Server) -> None:
        """Closed loops of several shapes."""
        before = server.memory_bytes()
        texts = load.texts_of(GOLDEN)
        seconds = self.typed.seconds / len(load.SHAPES)
        outcomes = [load.run(server, texts, shape, seconds) for shape in load.SHAPES]
        rows = [
            [
                f"{one.shape.clients} x {one.shape.texts}",
                str(one.requests),
                f"{one.texts_per_s:,.0f}",
                f"{one.p50_ms:.2f}",
                f"{one.p99_ms:.2f}",
            ]
            for one in outcomes
        ]
        self.report.table(["clients x texts", "requests", "texts/s", "p50 ms", "p99 ms"], rows)
        errors = sum(one.errors for one in outcomes)
        requests = sum(one.requests for one in outcomes)
        self.report.check(
            errors == 0 and requests > 0,
            f"{requests} requests in {self.typed.seconds:.0f} s, {errors} errors",
        )
        grown = (server.memory_bytes() - before) / 1e6
        self.report.say(f"\nHost memory {before / 1e6:.0f} MB before, {grown:+.0f} MB after.")

    def sanitizer(self, package: Path) -> None:
        """NVIDIA's checker of memory accesses, where it is installed."""
        tool = shutil.which("compute-sanitizer")
        if tool is None:
            self.report.skip("compute-sanitizer is not here")
            return
        check = self.command("check", str(package), "--engine", self.typed.flavour)
        done = subprocess.run(
            [tool, "--tool", "memcheck", "--error-exitcode", "9", *check],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        if not self.report.check(done.returncode == 0, "compute-sanitizer finds nothing"):
            self.report.code(done.stdout[-4000:] + done.stderr[-4000:])


if __name__ == "__main__":
    sys.exit(0 if Checks(arguments()).all() else 1)
