"""The check of a machine with a GPU leaves a report whatever happens."""

import argparse
import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from program_files import SCRIPTS, program, run

from gpu_check import standins, tables
from gpu_check.checks import Checks
from gpu_check.machine import Samples
from gpu_check.report import Report
from server import wait_for

FIRST = ["machine", "libraries", "plan"]
OF_PACKAGE = ["served", "graphs", "start", "shapes", "layers", "workers"]
#: What the sections on a stand-in for TensorRT run.
ON_STANDIN = ["served", "captures", "graphs", "workers", "start", "shapes", "fault", "sanitizer"]
Make = Callable[..., Checks]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Checks of a package with a binary that does what the text says."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model/manifest.json").write_text("{}")

    def checks(binary: str = "exit 0", limit: float | None = None) -> Checks:
        typed = argparse.Namespace(
            flavour="tensorrt",
            package=[tmp_path / "model"],
            library_dir=None,
            cuda_library_dir=None,
            binary=program(tmp_path / "bin/duovec", binary),
            standins=tmp_path / "standins",
            seconds=1.0,
            limit=limit,
        )
        return Checks(typed, Report(tmp_path / "report.md", "title"))

    return checks


class Sections:
    """Takes the place of what runs in sections: tells what ran, one of which raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
        self.ran: list[str] = []
        self.monkeypatch, self.broken = monkeypatch, broken

    def replace(self, owner: object, names: list[str]) -> None:
        """Replaces them where they are looked up."""
        for name in names:

            def section(*_: object, name: str = name, **__: object) -> bool:
                self.ran.append(name)
                if name == self.broken:
                    raise KeyError("what was read is not there")
                return True

            self.monkeypatch.setattr(owner, name, section)


@pytest.mark.parametrize("broken", sorted({*FIRST, *OF_PACKAGE, *ON_STANDIN}))
def test_a_section_that_raises_fails_and_the_others_run(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    sections, of_module = Sections(monkeypatch, broken), ["captures", "fault"]
    of_package = [] if broken == "plan" else OF_PACKAGE
    ran = [*FIRST, *of_package, *ON_STANDIN, "sanitizer"]
    sections.replace(standins, of_module)
    sections.replace(Checks, [name for name in {*ran, *OF_PACKAGE} if name not in of_module])
    monkeypatch.setattr(standins, "prepare", lambda checks, _: checks)
    assert not make().all()
    report = (tmp_path / "report.md").read_text()
    assert f"0 checks passed, {ran.count(broken)} failed.\n" in report
    assert "KeyError: 'what was read is not there'" in report
    assert sections.ran == ran


@pytest.mark.parametrize("broken", ["TemporaryDirectory", "prepare", "parts"])
def test_what_raises_before_the_sections_on_the_stand_in_leaves_a_report(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(standins, "prepare", lambda checks, _: checks)
    Sections(monkeypatch, broken).replace(standins, [broken])
    assert not make("exit 1").all()
    report = (tmp_path / "report.md").read_text()
    assert "- FAIL CUDA under a stand-in for TensorRT: rows: KeyError" in report
    assert "## Memory accesses" in report
    assert "did not come to its end" not in report


def test_a_command_without_an_end_fails_and_the_report_comes_in_time(
    make: Make, tmp_path: Path
) -> None:
    start = time.monotonic()
    assert not make('[ "$1" = --version ] || exec sleep 60', limit=4.0).all()
    assert time.monotonic() - start < 40
    report = (tmp_path / "report.md").read_text()
    assert "- FAIL Libraries: a command did not end within" in report
    assert report.count("- SKIP no plan runs here") == len(OF_PACKAGE)
    assert "- SKIP the time of --limit is over" in report


def test_a_machine_without_what_it_needs_has_a_report_with_the_reason(
    make: Make, tmp_path: Path
) -> None:
    assert not make("echo 'BAD   device: the driver shows no GPU'; exit 1").all()
    report = (tmp_path / "report.md").read_text()
    assert "- FAIL library, driver, device" in report
    assert "the driver shows no GPU" in report
    assert "0 checks passed, 1 failed.\n" in report


def test_a_server_that_does_not_start_ends_no_other_section(make: Make, tmp_path: Path) -> None:
    say = "echo cannot load >&2; exit 1"
    assert not make(f'[ "$1" = serve ] && {{ {say}; }}; echo "{{}}"').all()
    report = (tmp_path / "report.md").read_text()
    assert "RuntimeError: the server did not become ready:\ncannot load" in report
    assert "- FAIL model: graphs: KeyError: 'graphs'" in report
    assert "- FAIL model: shapes: KeyError: 'shapes'" in report
    assert "did not come to its end" not in report


def test_a_killed_check_leaves_what_it_has_found(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    code = (
        "import os, signal; from pathlib import Path; from gpu_check.report import Report\n"
        f"report = Report(Path({str(path)!r}), 'title')\n"
        "with report.section('first'):\n"
        "    report.check(True, 'this was seen')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == -signal.SIGKILL
    report = path.read_text()
    assert "1 checks passed, 0 failed. The check did not come to its end." in report
    assert "- PASS this was seen" in report


def test_clocks_and_power_are_read_while_something_runs(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = "echo '1980, 640.5, 55, 98, 2000'; echo '210, [N/A], 40, 0, 500'"
    said = tmp_path / "said"
    program(tmp_path / "smi/nvidia-smi", f"{read}; touch {said}; exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path / 'smi'}:{os.environ['PATH']}")
    checks = make()
    with Samples() as samples:
        wait_for("numbers", said.exists)
        samples.tell(checks.report)
    report = (tmp_path / "report.md").read_text()
    assert "| SM clock MHz | 210 |" in report
    assert "| 1980 |" in report
    assert "| power W | 640 | 640 | 640 |" in report


def test_a_server_that_does_not_start_ends_the_reading_of_clocks(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "pid"
    program(tmp_path / "smi/nvidia-smi", f"echo $$ >{mark}; exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path / 'smi'}:{os.environ['PATH']}")
    checks = make(f"until [ -s {mark} ]; do sleep 0.05; done; exit 1")
    with pytest.raises(RuntimeError, match="the server did not become ready"):
        checks.served(tmp_path / "model")
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_the_memory_of_all_gpus_is_told_by_stage() -> None:
    figures = {"captured_graphs": 7}
    for device, mega in [(0, (80_000, 1_500, 78_000)), (1, (80_000, 500, 79_250))]:
        for what, value in zip(("total", "sessions", "free"), mega, strict=True):
            figures[f"device_{device}_memory_{what}_bytes"] = value * 10**6
    assert tables.stages(figures) == ["750", "2,000", "157,250"]


def test_an_engine_that_tells_no_memory_leaves_the_cells_empty() -> None:
    assert tables.stages({"captured_graphs": 7}) == ["", "", ""]


KERNEL = SCRIPTS / "gpu_check/standin_kernel.ptx"


def test_the_kernels_text_is_that_of_its_sources() -> None:
    sources = [SCRIPTS.parent / f"cpp/testing/{KERNEL.stem}.{end}" for end in ("cu", "h")]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    hint = "run scripts/standin_kernel.sh"
    assert f"// SHA-256 of the sources: {digest}\n" in KERNEL.read_text(), hint


def test_the_kernel_has_one_entry_with_one_structure() -> None:
    entries = re.findall(r"\.entry (\w+)\(([^)]*)\)", KERNEL.read_text())
    assert [name for name, _ in entries] == ["duovec_standin_run"]
    parameters = [" ".join(one.split()) for one in entries[0][1].split(",")]
    # Six addresses, a time, five sizes, and what makes it a multiple of 8.
    assert parameters == [f".param .align 8 .b8 duovec_standin_run_param_0[{7 * 8 + 5 * 4 + 4}]"]


def test_the_kernel_rounds_as_a_processor_does() -> None:
    code = [line.split("//")[0] for line in KERNEL.read_text().splitlines()]
    floats = {word for line in code for word in re.findall(r"\b[a-z]+(?:\.\w+)*\.f32\b", line)}
    sums = {one for one in floats if one.split(".")[0] in ("add", "sub", "mul", "div", "sqrt")}
    assert sums
    assert all(".rn" in one for one in sums), sums
    forbidden = ("fma", "approx", "ftz", "call")
    assert not [line for line in code for word in forbidden if re.search(rf"\b{word}\b", line)]
