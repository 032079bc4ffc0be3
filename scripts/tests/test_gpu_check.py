"""The check of a machine with a GPU: its report whatever happens, what it refuses at once, what it
takes along to a machine without network, and which Python. Machines with GPUs often have 3.10."""

import argparse
import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from program_files import SCRIPTS, program, run

from gpu_check import libraries, standins, tables
from gpu_check.checks import Checks
from gpu_check.machine import samples
from gpu_check.report import Report
from load.wrk import LIBRARY, Wrk
from server import wait_for

FIRST = ["machine", "libraries", "plan"]
OF_PACKAGE = ["served", "graphs", "start", "shapes", "layers", "workers"]
#: What the sections on a stand-in for TensorRT run.
ON_STANDIN = ["served", "captures", "graphs", "workers", "start", "shapes", "fault", "sanitizer"]
Make = Callable[..., Checks]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A package, for all that anybody looks at."""
    return program(tmp_path / "model/manifest.json", "").parent


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that are found first."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{os.environ['PATH']}")
    return tmp_path / "tools"


@pytest.fixture
def make(tmp_path: Path, model: Path) -> Make:
    """Checks of a package with a binary that does what the text says."""
    (model / "manifest.json").write_text("{}")

    def checks(binary: str = "exit 0", limit: float | None = None) -> Checks:
        typed = argparse.Namespace(
            flavour="tensorrt",
            package=[model],
            library_dir=None,
            cuda_library_dir=None,
            binary=program(tmp_path / "bin/duovec", binary),
            standins=tmp_path / "standins",
            seconds=1.0,
            limit=limit,
        )
        return Checks(typed, Report(tmp_path / "report.md", "title"))

    return checks


def replaced(patch: pytest.MonkeyPatch, broken: str, places: dict[Any, Iterable[str]]) -> list[str]:
    """What is in these places of owners only tells that it ran, in this list, and one raises."""
    ran: list[str] = []

    def section(name: str, *_: object, **__: object) -> bool:
        ran.append(name)
        if name == broken:
            raise KeyError("what was read is not there")
        return True

    for owner, names in places.items():
        for name in names:
            patch.setattr(owner, name, partial(section, name))
    return ran


@pytest.mark.parametrize("broken", sorted({*FIRST, *OF_PACKAGE, *ON_STANDIN}))
def test_a_section_that_raises_fails_and_the_others_run(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    of_package, of_module = [] if broken == "plan" else OF_PACKAGE, {"captures", "fault"}
    wanted = [*FIRST, *of_package, *ON_STANDIN, "sanitizer"]
    of_checks = {*wanted, *OF_PACKAGE} - of_module
    ran = replaced(monkeypatch, broken, {standins: of_module, Checks: of_checks})
    monkeypatch.setattr(standins, "prepare", lambda checks, _: checks)
    assert not make().all()
    report = (tmp_path / "report.md").read_text()
    assert f"0 checks passed, {wanted.count(broken)} failed.\n" in report
    assert "KeyError: 'what was read is not there'" in report
    assert ran == wanted


@pytest.mark.parametrize("broken", ["TemporaryDirectory", "prepare", "parts"])
def test_what_raises_before_the_sections_on_the_stand_in_leaves_a_report(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(standins, "prepare", lambda checks, _: checks)
    replaced(monkeypatch, broken, {standins: [broken]})
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
    make: Make, tools: Path, tmp_path: Path
) -> None:
    read = "echo '1980, 640.5, 55, 98, 2000'; echo '210, [N/A], 40, 0, 500'"
    said = tmp_path / "said"
    program(tools / "nvidia-smi", f"{read}; touch {said}; exec sleep 60")
    checks = make()
    with samples(checks.report):
        wait_for("numbers", said.exists)
    report = (tmp_path / "report.md").read_text()
    assert "| SM clock MHz | 210 |" in report
    assert "| 1980 |" in report
    assert "| power W | 640 | 640 | 640 |" in report


def test_a_server_that_does_not_start_ends_the_reading_of_clocks(
    make: Make, tools: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    program(tools / "nvidia-smi", f"echo $$ >{mark}; exec sleep 60")
    checks = make(f"until [ -s {mark} ]; do sleep 0.05; done; echo cannot load >&2; exit 1")
    with pytest.raises(RuntimeError, match="the server did not become ready:\ncannot load"):
        checks.served(tmp_path / "model")
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_the_memory_of_all_gpus_is_told_by_stage() -> None:
    figures = {"captured_graphs": 7}
    for device, mega in [(0, (80_000, 1_500, 78_000)), (1, (80_000, 500, 79_250))]:
        for what, value in zip(("total", "sessions", "free"), mega, strict=True):
            figures[f"device_{device}_memory_{what}_bytes"] = value * 10**6
    assert tables.stages(figures) == ["750", "2,000", "157,250"]
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


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        ({"--package": "nowhere"}, "--package: nowhere is no package: it has no manifest.json"),
        ({"--library-dir": "nowhere"}, "--library-dir: nowhere is no folder"),
        ({"--report": "nowhere/report.md"}, "--report: the folder of nowhere/report.md is not"),
        ({"--binary": "nowhere"}, "/nowhere is not there: build it, or name another with --bin"),
        ({"--binary": "text"}, "/text cannot be run: [Errno 13] Permission denied"),
        ({"--binary": "fails"}, "/fails cannot be run: libc is too old"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    tmp_path: Path, model: Path, wrong: dict[str, str], refusal: str
) -> None:
    (tmp_path / "text").write_text("no program")
    program(tmp_path / "fails", "echo libc is too old >&2; exit 1")
    program(tmp_path / "runs", "")
    words = {"--package": model.name, "--binary": "runs", "--report": "report.md"} | wrong
    told = [word for pair in words.items() for word in pair]
    done = run("bash", SCRIPTS / "gpu_check.sh", *told, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("duovec: ")
    assert done.stderr.count("\n") == 1
    assert refusal in done.stderr
    assert not (tmp_path / "report.md").exists()


def test_without_any_library_the_report_says_so(tmp_path: Path, model: Path) -> None:
    lacking = "echo 'none  library tensorrt: no such file'; exit 1"
    binary = program(tmp_path / "bin/duovec", f'[ "$1" = --version ] || {{ {lacking}; }}')
    words = ["--package", model, "--binary", binary, "--library-dir", tmp_path]
    done = run("bash", SCRIPTS / "gpu_check.sh", *words, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    report = (tmp_path / "gpu-report.md").read_text()
    assert "No library of tensorrt or tensorrt-rtx opens here:" in report
    assert "library tensorrt: no such file" in report


def test_the_runtime_suits_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "ROOT", tmp_path)
    assert libraries.cuda_folder("CUDA Version: 13.0") is None
    newest, older = (tmp_path / part for part in libraries.CUDA)
    newest.parent.mkdir(parents=True)
    older.parent.mkdir()
    program(newest / "libcudart.so.13", "")
    assert libraries.cuda_folder("") == newest
    assert libraries.cuda_folder("CUDA Version: 12.4") is None
    program(older / "libcudart.so.12", "")
    assert libraries.cuda_folder("CUDA Version: 12.4") == older
    assert libraries.cuda_folder("| CUDA Version: 13.0 |") == newest
    # A folder may have both.
    program(newest / "libcudart.so.12", "")
    assert libraries.cuda_folder("CUDA Version: 12.4") == newest


def test_the_check_uses_nothing_that_python_3_10_lacks(tmp_path: Path) -> None:
    mypy = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), "--python-version", "3.10"]
    done = run(*mypy, "-p", "gpu_check", MYPYPATH="../tests/clients")
    assert done.stdout.startswith("Success: no issues found"), done.stdout


def test_an_older_python_is_refused_in_one_line(tmp_path: Path) -> None:
    old = 'if [ "$1" = --version ]; then echo Python 3.9.2; exit; fi; [ "$1" != -c ]'
    python = program(tmp_path / "python3", old)
    done = run("bash", SCRIPTS / "gpu_check.sh", PYTHON=str(python))
    assert done.returncode == 1
    refusal = f"duovec: {python} is Python 3.9.2: name Python 3.10 or later with PYTHON=FILE\n"
    assert done.stderr == refusal


#: A binary that opens what is in the folder that it is told, and whose engine has no GPU.
BINARY = """
echo "$@" >>"$CALLS"
[ "$1" != check ] || while [ $# -gt 0 ]; do
    if [ "$1" = --tensorrt-library-dir ]; then
        [ ! -e "$2/libnvinfer.so.11" ] || echo "ok    library tensorrt: 11.4.0"
        [ ! -e "$2/libtensorrt_rtx.so.1" ] || echo "ok    library tensorrt-rtx: 1.7.1"
    fi
    shift
done
[ "$1" = --version ]
"""


def carried(tmp_path: Path, *libraries: str) -> Path:
    """The folder in which the archive of a checkout with these libraries is unpacked."""
    here, there = tmp_path / "here", tmp_path / "there it is"
    for name in (*libraries, "cuda/lib/libcudart.so.13", "standins/libnvinfer.so.11"):
        program(here / "third_party" / name, "")
    program(here / "target/release/duovec", BINARY)
    package = program(here / "engines/multilingual-e5-small/manifest.json", "")
    package.write_text('{"model_id": "m"}')
    for name in ("scripts", "tests"):
        (here / name).symlink_to(SCRIPTS.parent / name)
    [command] = re.findall(
        r"^\$ (tar .*)", (SCRIPTS.parent / "docs/gpu.md").read_text(), re.MULTILINE
    )
    packed = run("bash", "-c", command, cwd=here)
    assert packed.returncode == 0, packed.stderr
    there.mkdir()
    run("tar", "-xzf", here / "gpu.tar.gz", cwd=there)
    return there


@pytest.mark.parametrize(
    ("libraries", "flavour"),
    [
        (["tensorrt/lib/libnvinfer.so.11"], "tensorrt"),
        (["tensorrt-rtx/lib/libtensorrt_rtx.so.1"], "tensorrt-rtx"),
        (["tensorrt/lib/libnvinfer.so.11", "tensorrt-rtx/lib/libtensorrt_rtx.so.1"], "tensorrt"),
    ],
)
def test_carried_libraries_are_taken(tmp_path: Path, libraries: list[str], flavour: str) -> None:
    there, calls = carried(tmp_path, *libraries), tmp_path / "calls"
    ran = run(there / "scripts/gpu_check.sh", cwd=there, CALLS=str(calls))
    report = (there / "gpu-report.md").read_text()
    assert ran.returncode == 1, ran.stderr
    folder, package = there / "third_party" / flavour / "lib", there / "engines"
    assert f"\nLibrary: {flavour} 1" in report
    assert f", {folder}\n" in report
    assert "did not come to its end" not in report
    plan = f"check {package}/multilingual-e5-small --engine {flavour} --log-level warn"
    cuda = there / "third_party/cuda/lib"
    named = f"{plan} --tensorrt-library-dir {folder} --cuda-library-dir {cuda}\n"
    assert named in calls.read_text()


def test_wrk_may_have_its_library_beside_it(tools: Path) -> None:
    program(tools / "wrk", "")
    assert Wrk.found().environment.get("LD_LIBRARY_PATH") != str(tools)
    (tools / LIBRARY).touch()
    assert Wrk.found().environment["LD_LIBRARY_PATH"] == str(tools)
