"""What is checked, section by section: one that fails never keeps the next from running."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from gpu_check import libraries, load, machine, standins, tables
from gpu_check.libraries import ROOT
from gpu_check.programs import Programs, Server
from gpu_check.report import SkipSection

GOLDEN = ROOT / "tests/golden/multilingual-e5-small.json"
WORKERS = (1, 2, 4)


class Checks(Programs):
    """All checks of one flavour."""

    def all(self) -> bool:
        """Whether everything passed."""
        with self.report.section("Machine"):
            self.machine()
        with self.report.section("Libraries"):
            self.libraries()
        for package in self.typed.package:
            runs = False
            with self.report.section(f"{package.name}: plan"):
                runs = self.plan(package)
            for name, check in self.of_package().items():
                with self.report.section(f"{package.name}: {name}"):
                    if not runs:
                        raise SkipSection("no plan runs here")
                    self.limit.seconds()
                    check(package)
        standins.check_all(self)
        with self.report.section("Memory accesses"):
            self.limit.seconds()
            # Last, and of one package: it is slow, and nothing depends on it.
            self.sanitizer(self.typed.package[0])
        return self.report.end()

    def of_package(self) -> dict[str, Callable[[Path], None]]:
        """The checks of a package whose plan runs, in their order."""
        return {
            "numbers and load": self.served,
            "graphs": self.graphs,
            "start": self.start,
            "shapes": self.shapes,
            "layers": self.layers,
            "workers": self.workers,
        }

    def machine(self) -> None:
        """Hardware and versions."""
        self.report.say(f"{platform.machine()}, {os.cpu_count()} processor cores, {sys.platform}")
        self.report.code(self.call([str(self.typed.binary), "--version"]).stdout)
        for words in ([f"--query-gpu={machine.GPU_FIELDS}", "--format=csv"], ["topo", "-m"]):
            done = machine.query(*words)
            self.report.code(done.stdout + done.stderr)

    def libraries(self) -> None:
        """Which flavour is checked, and where its library is."""
        libraries.choose(self)

    def plan(self, package: Path) -> bool:
        """Whether the package's plan runs here; builds one when there is none."""
        check = ("check", str(package), "--engine", self.flavour, "--log-level", "warn")
        done = self.run(*check)
        if done.returncode != 0 and "no plan of" in done.stdout + done.stderr:
            self.report.code(done.stdout + done.stderr)
            built = self.run("build-engine", str(package), "--flavour", self.flavour)
            self.report.code(built.stdout + built.stderr)
            self.report.check(built.returncode == 0, "a plan is built on this machine")
            done = self.run(*check)
        self.report.code(done.stdout + done.stderr)
        return self.report.check(
            done.returncode == 0,
            "library, driver, device and plan are well, and the canary gives its f32 numbers",
        )

    def served(self, package: Path) -> None:
        """The server: golden numbers, load, health, memory, end."""
        with machine.samples(self.report), self.serve(package) as server:
            self.golden(server, package)
            before = server.memory_bytes("VmRSS")
            self.load(server, self.typed.seconds)
            grown = (server.memory_bytes("VmRSS") - before) / 1e6
            self.report.say(f"\nHost memory {before / 1e6:.0f} MB before, {grown:+.0f} MB after.")
            self.golden(server, package)
            status, deep = server.ask("/health/deep")
            self.report.check(status == 200, f"the deep check passes after the load: {deep}")
            _, health = server.ask("/health")
            self.report.code(json.dumps(health["tuning"], indent=1))
            self.stop(server)

    def load(self, server: Server, seconds: float) -> None:
        """Closed loops of several shapes, within what is left of the time."""
        texts = load.texts_of(GOLDEN)
        try:
            load.run_all(self.report, server, texts, self.limit.seconds(seconds))
        except SkipSection as reason:
            self.report.skip(str(reason))

    def golden(self, server: Server, package: Path) -> None:
        """Vectors against those of an independent f32 program, for the model that has them."""
        manifest = json.loads((package / "manifest.json").read_text())
        if manifest["model_id"] != json.loads(GOLDEN.read_text())["model_id"]:
            self.report.skip(f"golden numbers: there are none for {manifest['model_id']}")
            return
        tolerance = manifest["canary"]["tolerances"]["sparse_max_abs"]
        lowest, largest, count = load.compare(server, GOLDEN)
        self.report.check(
            lowest >= load.COSINE_MIN and largest <= tolerance,
            f"golden numbers of {count} texts against f32: lowest cosine {lowest:.6f}, largest "
            f"difference of a lexical weight {largest:.4f}",
        )

    def start(self, package: Path) -> None:
        """What a start is made of, and what the graphs take of it and of the GPU's memory."""
        rows, stages = [], []
        said: list[tuple[float, str]] = []
        for name, more in {"with graphs": (), "without": ("--cuda-graph-tokens", "0")}.items():
            with self.serve(package, *more) as server:
                figures = server.figures()
                said = said or server.start_up()
                captured = figures.get("captured_graphs", 0)
                rows.append([name, str(captured), f"{server.ready_seconds:.2f}"])
                stages.append([name, *tables.stages(figures), *server.memory_megabytes()])
        self.report.table(["start", "graphs", "ready s"], rows)
        self.report.say("Memory by stage, of all GPUs and of the process when it is ready, in MB:")
        self.report.table(["start", *tables.STAGES, "resident", "most resident"], stages)
        self.report.say("The first start, by its log:")
        self.report.table(["s", "line"], [[f"{at:.2f}", text] for at, text in said])

    def graphs(self, package: Path) -> None:
        """Captured graphs against plain runs."""
        bench = self.bench(package, "--compare-graphs", "--no-table", "--ms-per-shape", "50")
        graphs = bench["graphs"]
        text = (
            f"{graphs['captured']} of {graphs['buckets']} buckets captured, largest difference to "
            f"a plain run {graphs['largest_difference']}, {graphs['time_ratio']:.2f} of its time"
        )
        self.report.check(graphs["equal"] and graphs["refused"] == 0, text)

    def shapes(self, package: Path, only: str | None = None) -> None:
        """The table of all shapes, or only of some."""
        bench = self.bench(package, *(("--shapes", only) if only else ()))
        what = "some shapes are" if only else "every shape is"
        if self.report.check(bool(bench["shapes"]), f"{what} measured"):
            tables.shapes(self.report, bench)

    def layers(self, package: Path) -> None:
        """What the layers of the plan take."""
        words = ("build-engine", str(package), "--flavour", self.flavour, "--layer-times")
        done = self.run(*words)
        if self.report.check(done.returncode == 0, "the time of every layer is told"):
            tables.layers(self.report, json.loads(done.stdout))
        else:
            self.report.code(done.stderr)

    def workers(self, package: Path) -> None:
        """The same load on one, two and four workers a GPU."""
        load.find_wrk()
        for count in WORKERS:
            self.report.say(f"\nWorkers on each GPU: {count}\n")
            with self.serve(package, "--workers-per-device", str(count)) as server:
                self.load(server, self.typed.seconds / len(WORKERS))

    def sanitizer(self, package: Path) -> None:
        """NVIDIA's checker of memory accesses, where it is installed."""
        tool = shutil.which("compute-sanitizer")
        if tool is None:
            raise SkipSection("compute-sanitizer is not here")
        check = self.command("check", str(package), "--engine", self.flavour)
        # NVIDIA's libraries make calls that fail on purpose.
        words = ["--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9"]
        done = self.call([tool, *words, *check])
        if not self.report.check(done.returncode == 0, "compute-sanitizer finds nothing"):
            self.report.code(done.stdout + done.stderr)
