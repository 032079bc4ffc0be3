"""scripts/serve.sh and build_engine.sh with stand-ins for driver, wheels, cargo and binary."""

import os
import pty
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from program_files import SCRIPTS, program, run, shell

from model_export import flags

# What it serves with is told by flags and by variables.
BINARY = """#!/bin/sh
shift
echo "serves: $*"
for name in BUILD_PLAN TENSORRT_LIBRARY_DIR CUDA_LIBRARY_DIR PACKAGE \\
    DEFAULT_TENSORRT_LIBRARY_DIR DEFAULT_CUDA_LIBRARY_DIR; do
    eval "value=\\$DUOVEC_$name"
    [ -z "$value" ] || echo "$name=$value"
done
"""
#: More than a pipe holds, with a line in the middle.
LONG_LIST = "yes '\tlibother.so.1 (libc6,x86-64) => /lib/other' | head -n 3000"
MAKER = "import sys; print('making:', *sys.argv[1:], file=sys.stderr); print('/kept/package')"
CARGO = """
mkdir -p target/release
cp "$BINARY_TEXT" target/release/duovec
chmod +x target/release/duovec
echo "$*" >>cargo.log
"""


def start(root: Path, script: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of `repository`."""
    variables = variables_of(root)
    return run("bash", root / "scripts" / script, *words, cwd=root, **variables, **more)


def variables_of(root: Path) -> dict[str, str]:
    """With which the scripts of `repository` find the stand-ins."""
    machine = root.parent
    variables = {"PATH": f"{machine / 'tools'}:{os.environ['PATH']}"}
    variables |= {"DUOVEC_CACHE_DIR": str(machine / "cache")}
    variables |= {"BINARY_TEXT": str(machine / "binary"), "CARGO_TARGET_DIR": str(root / "target")}
    return variables


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """All is made already, but no binary with TensorRT."""
    root = tmp_path / "repository"
    for name in ("serve.sh", "build_engine.sh", "lib", "model_export/flags.py"):
        place = root / "scripts" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if name == "lib" else shutil.copy)(SCRIPTS / name, place)
    log = f'echo "$*" >>{tmp_path}/python.log'
    python = program(tmp_path / "python", f'{log}\nexec {sys.executable} "$@"')
    for name, made in {
        "setup.sh": f"ensure_venv() {{ PYTHON={python} DUOVEC_OPENVINO_LIBRARY_DIR='/a b'; }}",
        "tensorrt.sh": "ensure_tensorrt() { :; }",
    }.items():
        with (root / "scripts/lib" / name).open("a") as file:
            file.write(f"{made}\n")
    (root / "docs").mkdir()
    shutil.copy(SCRIPTS.parent / "docs/settings.md", root / "docs")
    (root / "scripts/export_onnx.py").write_text(MAKER)
    package = root / "engines/model"
    package.mkdir(parents=True)
    (package / "model.fp16.onnx").write_text("a graph")
    (package / "manifest.json").touch()
    program(tmp_path / "tools/ldconfig", "exit 0")
    program(tmp_path / "tools/cargo", CARGO)
    (tmp_path / "binary").write_text(BINARY)
    return root


WHEELS = {
    "13": [
        ("tensorrt_cu13_libs", "11.4.0.106", "tensorrt_libs/libnvinfer.so.11"),
        ("nvidia_cuda_runtime", "13.5.37", "nvidia/cu13/lib/libcudart.so.13"),
    ],
    "12": [
        ("tensorrt_cu12_libs", "11.4.0.106", "tensorrt_libs/libnvinfer.so.11"),
        ("nvidia_cuda_runtime_cu12", "12.9.79", "nvidia/cuda_runtime/lib/libcudart.so.12"),
    ],
}
Serve = Callable[..., subprocess.CompletedProcess[str]]


def wheel(folder: Path, name: str, version: str, file: str) -> None:
    """A wheel with one file."""
    folder.mkdir(exist_ok=True)
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(file, "a library")
        for part, text in texts.items():
            archive.writestr(f"{name}-{version}.dist-info/{part}", text)


@pytest.fixture
def serve(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Runs the command on a machine whose driver knows that CUDA; none without a driver."""
    # scripts/test.sh sets it for other tests.
    monkeypatch.delenv("DUOVEC_OPENVINO_LIBRARY_DIR", raising=False)

    def run(*words: str, cuda: str | None = "13", **more: str) -> subprocess.CompletedProcess[str]:
        smi = tmp_path / "tools/nvidia-smi"
        smi.unlink(missing_ok=True)
        if cuda is not None:
            gpus = 'for at in 0 1 2 3 4 5 6 7; do echo "GPU $at: stand-in"; sleep 0.01; done'
            listed = f'if [ "$1" = -L ]; then {gpus}; exit; fi'
            program(smi, f"{listed}\necho '| Driver Version: 1.0  CUDA Version: {cuda}.1 |'")
        # TensorRT is not installed where the disk has no room for it, and the CPU serves then.
        program(tmp_path / "tools/df", "echo\necho disk 90000 0 90000 0% /")
        variables = {
            "DUOVEC_PACKAGE": str(repository / "engines/model"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        }
        return start(repository, "serve.sh", *words, "--port", "0", **(variables | more))

    return run


@pytest.mark.parametrize("cuda", ["12", "13"])
def test_a_gpu_gets_the_wheels_of_its_drivers_cuda_and_may_get_a_plan(
    serve: Serve, tmp_path: Path, cuda: str
) -> None:
    for one in WHEELS[cuda]:
        wheel(tmp_path / "wheels", *one)
    done = serve(cuda=cuda)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("serves: --port 0\nBUILD_PLAN=true\nTENSORRT_LIBRARY_DIR=")
    runtime = Path(done.stdout.split("CUDA_LIBRARY_DIR=")[1].split()[0])
    assert (runtime / f"libcudart.so.{cuda}").exists()
    # Where wheels come from is for pip's own settings to say.
    lines = (tmp_path / "python.log").read_text().splitlines()
    [install] = [line for line in lines if "pip install" in line]
    assert "index" not in install and "://" not in install
    # All of it is kept: the second start takes no wheel.
    shutil.rmtree(tmp_path / "wheels")
    again = serve(cuda=cuda)
    assert again.stdout == done.stdout
    assert "installing" not in again.stderr


@pytest.mark.parametrize(
    "library", ["libnvinfer.so.10", "libnvinfer.so.11", "libtensorrt_rtx.so.1"]
)
def test_an_installed_tensorrt_is_taken_as_it_is(
    serve: Serve, repository: Path, tmp_path: Path, library: str
) -> None:
    line = f"printf '\\t{library} (libc6,x86-64) => /lib/x\\n'"
    program(tmp_path / "tools/ldconfig", f"{LONG_LIST}\n{line}\n{LONG_LIST}")
    done = serve()
    package = repository / "engines/model"
    assert done.stdout == f"serves: --port 0\nBUILD_PLAN=true\nPACKAGE={package}\n", done.stderr
    assert f"TensorRT is installed: {library}" in done.stderr


def test_a_library_in_a_folder_of_the_loaders_is_installed(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/libnvinfer.so.10").touch()
    done = serve(LD_LIBRARY_PATH=f"/nowhere:{tmp_path / 'own'}")
    assert "TensorRT is installed: libnvinfer.so.10" in done.stderr
    assert "TENSORRT_LIBRARY_DIR" not in done.stdout


def test_what_the_user_set_stays(serve: Serve, repository: Path, tmp_path: Path) -> None:
    words = ["--tensorrt-library-dir", "/own", "--cuda-library-dir=/cuda", "--build-plan", "false"]
    package = repository / "engines/model"
    done = serve(*words)
    assert done.stdout == f"serves: {' '.join(words)} --port 0\nPACKAGE={package}\n", done.stderr
    done = serve(DUOVEC_TENSORRT_LIBRARY_DIR="/own", DUOVEC_BUILD_PLAN="false")
    assert "BUILD_PLAN=false\nTENSORRT_LIBRARY_DIR=/own\n" in done.stdout, done.stderr
    settings = tmp_path / "settings.toml"
    settings.write_text('build_plan = false\n tensorrt_library_dir = "/own" # mine\n')
    for done in (serve("--config", str(settings)), serve(DUOVEC_CONFIG=str(settings))):
        assert "TensorRT is that in /own\n" in done.stderr
        assert "BUILD_PLAN" not in done.stdout and "LIBRARY_DIR" not in done.stdout


def test_the_package_that_was_named_gets_the_graph_that_it_lacks(
    serve: Serve, repository: Path, tmp_path: Path
) -> None:
    own, half = tmp_path / "own", tmp_path / "half"
    for folder in (own, half):
        folder.mkdir()
        (folder / "manifest.json").touch()
    (half / "model.bf16.onnx").touch()
    script = repository / "scripts/export_onnx.py"
    # With success: there is nothing to add to a graph in 16 bits.
    script.write_text("import sys; print('16 bits already', file=sys.stderr)")
    words = ["--tensorrt-library-dir", "/own"]
    alone, beside = serve(*words, "--package", str(own)), serve(*words, f"--package={half}")
    assert f"adding the fp16 graph to {own}" in alone.stderr
    assert "16 bits already" in alone.stderr
    assert "adding the fp16 graph" not in beside.stderr
    for done in (alone, beside):
        assert "BUILD_PLAN=true" in done.stdout, done.stderr


def test_no_plan_is_built_of_an_f32_graph_where_the_fp16_graph_cannot_be_added(
    serve: Serve, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/manifest.json").touch()
    (repository / "scripts/export_onnx.py").write_text("raise SystemExit('the disk is full')")
    words = ["--tensorrt-library-dir", "/own", "--package", str(tmp_path / "own")]
    done = serve(*words)
    # The plan would fit at all later starts, and none would build the one in 16 bits.
    assert "BUILD_PLAN" not in done.stdout, done.stderr
    assert "the disk is full" in done.stderr
    assert "serving on the CPU" in done.stderr


@pytest.mark.parametrize(
    ("cuda", "reason"),
    [
        ("13", "pip cannot get tensorrt-cu13-libs==11.4.0.106 nvidia-cuda-runtime==13.5.37"),
        ("12", "PIP_EXTRA_INDEX_URL"),
        ("11", "the driver is for CUDA 11: 12 is the oldest"),
    ],
)
def test_a_step_that_fails_says_why_and_the_cpu_serves(
    serve: Serve, cuda: str, reason: str
) -> None:
    done = serve(cuda=cuda)
    assert done.stdout.startswith("serves: --port 0\nPACKAGE="), done.stderr
    assert reason in done.stderr
    assert "serving on the CPU" in done.stderr


def test_the_cpu_serves_when_it_is_asked_for_or_there_is_no_driver(
    serve: Serve, repository: Path
) -> None:
    engines = (serve("--engine", "openvino"), serve("--engine=fake"), serve(DUOVEC_ENGINE="fake"))
    for done in (serve("--cpu"), serve(cuda=None), serve("--engine", "auto", "--cpu"), *engines):
        assert done.stdout.startswith("serves: "), done.stderr
        assert "--cpu" not in done.stdout and "BUILD_PLAN" not in done.stdout
        assert "GPU" not in done.stderr
    assert "tensorrt" not in (repository / "cargo.log").read_text()


def test_eight_bits_are_served_on_the_cpu_from_a_graph_that_is_added_once(
    serve: Serve, repository: Path, tmp_path: Path
) -> None:
    script = repository / "scripts/quantize_package.py"
    script.write_text("import sys; open(sys.argv[-1] + '/model.int8.onnx', 'w')")
    package = repository / "engines/model"
    for done in (serve("--precision", "int8"), serve(DUOVEC_PRECISION="int8")):
        assert done.stdout.startswith("serves: "), done.stderr
        assert "BUILD_PLAN" not in done.stdout
    lines = (tmp_path / "python.log").read_text().splitlines()
    assert lines == [f"{script} --quick --package {package}"]


@pytest.mark.parametrize(
    ("words", "script", "said"),
    [
        (["--precision=int8"], "quantize_package.py", "the graph in 8 bits could not be added"),
        (["--cpu", "--model", "a"], "export_onnx.py", "the model cannot be served"),
    ],
)
def test_a_package_that_cannot_be_made_ends_the_start(
    serve: Serve, repository: Path, words: list[str], script: str, said: str
) -> None:
    (repository / "scripts" / script).write_text("raise SystemExit('a is gated')")
    done = serve(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert "a is gated\n" in done.stderr and said in done.stderr


def test_a_value_may_look_like_a_flag(serve: Serve) -> None:
    done = serve("--api-key", "--odd", "--max-items=3", cuda=None)
    assert done.stdout.startswith("serves: --api-key --odd --max-items=3"), done.stderr


def test_a_build_is_told_of_only_where_there_is_something_to_build(
    serve: Serve, repository: Path
) -> None:
    told = "building the release binary"
    assert told in serve(cuda=None).stderr
    assert told not in serve(cuda=None).stderr
    source = repository / "src/main.rs"
    source.parent.mkdir()
    source.touch()
    assert told in serve(cuda=None).stderr


def test_a_person_who_waits_for_the_build_sees_cargos_progress(repository: Path) -> None:
    watched, terminal = pty.openpty()
    package = {"DUOVEC_PACKAGE": str(repository / "engines/model")}
    command = ["bash", repository / "scripts/serve.sh", "--cpu"]
    variables = os.environ | variables_of(repository) | package
    start(repository, "serve.sh", "--cpu", **package)
    (repository / "src").mkdir()
    (repository / "src/main.rs").touch()
    # The third has nothing to build.
    for _ in range(2):
        subprocess.run(command, check=True, env=variables, stderr=terminal, timeout=60)
    os.close(terminal)
    os.close(watched)
    quiet = ["--quiet" in line for line in (repository / "cargo.log").read_text().splitlines()]
    assert quiet == [True, False, True]


def test_a_start_says_how_other_commands_of_the_binary_are_run(
    serve: Serve, repository: Path, tmp_path: Path
) -> None:
    for one in WHEELS["13"]:
        wheel(tmp_path / "wheels", *one)
    (tmp_path / "b.toml").write_text("openvino_library_dir = '/of/a/file'")
    for done, libraries in (
        (serve(cuda=None), "/a b"),
        (serve(cuda="13"), "/a b"),
        (serve("--openvino-library-dir", "own 1", cuda=None), str(repository / "own 1")),
        (serve("--config", str(tmp_path / "b.toml"), cuda=None), "/of/a/file"),
    ):
        [line] = [line for line in done.stderr.splitlines() if "export " in line]
        # The whole line is what is pasted.
        assert line.startswith("export ")
        shown = f"{line}; command -v duovec; echo $DUOVEC_OPENVINO_LIBRARY_DIR"
        told = run("bash", "-c", shown).stdout.splitlines()
        assert told == [str(repository / "target/release/duovec"), libraries]


@pytest.mark.parametrize(
    ("words", "wishes"),
    [
        (["--model", "BAAI/bge-m3"], "--model=BAAI/bge-m3"),
        (["--no-sparse", "--model=a/b@v1", "--update"], "--no-sparse --model=a/b@v1 --update"),
        (["--token-vectors", "--model=a"], "--token-vectors --model=a"),
        (["--model", "a", "--query-prompt", "--find: "], "--model=a --query-prompt=--find: "),
    ],
)
def test_the_package_of_a_name_is_served(serve: Serve, words: list[str], wishes: str) -> None:
    done = serve("--cpu", *words, DUOVEC_PACKAGE="/other")
    assert done.stdout.startswith("serves: --port 0 --package /kept/package\n"), done.stderr
    assert f"making: --precision fp32 {wishes}\n" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--no-sparse"], "--no-sparse needs --model NAME"),
        (["--model"], "--model needs a value"),
        (["--host", "::1", "--port"], "--port needs a value"),
        (["--model", "a", "--package", "b"], "--model and --package name two models"),
        (["--model", "a", "--modle=b"], "--modle=b is no flag of duovec serve"),
        (["--max-itmes", "3"], "--max-itmes is no flag of duovec serve"),
        (["--max-items", "3", "4"], "4 is no flag of duovec serve"),
        (["--modle", "a"], "did you mean --model? scripts/serve.sh --help"),
        (["--cpus"], "did you mean --cpu? scripts/serve.sh --help"),
        (["--max-itmes=3"], "did you mean --max-items? scripts/serve.sh --help"),
        (["--elsewhere"], "--elsewhere is no flag of duovec serve: scripts/serve.sh --help"),
        (["--port", "abc"], "--port: 'abc' is not a port, 0 to 65535"),
        (["--port=99999"], "--port: '99999' is not a port, 0 to 65535"),
        (["--precision", "int4"], "--precision: 'int4' is not one of auto, f32, bf16, f16, int8"),
        (["--engine=cpu"], "--engine: 'cpu' is not one of auto, openvino"),
        (["--package", "nowhere"], "/nowhere is not a package: there is no such folder; give the"),
        (["--package=docs"], "/docs is not a package: there is no manifest.json in it; give the"),
    ],
)
def test_wrong_words_are_said_before_anything_is_made(
    repository: Path, words: list[str], sentence: str
) -> None:
    done = start(repository, "serve.sh", *words)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert sentence in line
    assert not (repository / "cargo.log").exists()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("port", "x", "'x' is not a port, 0 to 65535"),
        ("engine", "cpu", "'cpu' is not one of auto, "),
        ("precision", "int4", "'int4' is not one of auto, "),
    ],
)
def test_a_wrong_value_is_told_with_the_place_where_it_was_given(
    repository: Path, tmp_path: Path, name: str, value: str, said: str
) -> None:
    variable, file = f"DUOVEC_{name.upper()}", tmp_path / "b.toml"
    done = start(repository, "serve.sh", **{variable: f"{value} "})
    assert done.stderr.startswith(f"duovec: {variable}: {said}"), done.stderr
    file.write_text(f"{name} = '{value}\t'")
    done = start(repository, "serve.sh", DUOVEC_CONFIG=str(file))
    assert done.stderr.startswith(f"duovec: {file}, {name}: {said}"), done.stderr
    # A flag beats a variable, and that the file.
    done = start(repository, "serve.sh", f"--{name}={value}2", **{variable: value})
    assert done.stderr.startswith(f"duovec: --{name}: '{value}2'"), done.stderr


def test_blanks_around_a_value_are_no_part_of_it(serve: Serve, repository: Path) -> None:
    package = f"{repository / 'engines/model'}\r"
    more = {"DUOVEC_ENGINE": "fake ", "DUOVEC_PACKAGE": package, "DUOVEC_PRECISION": "f32\r"}
    done = serve("--port", " +8080 ", **more)
    assert done.stdout.startswith("serves: "), done.stderr
    assert "GPU" not in done.stderr


def test_a_link_to_a_service_is_no_port(repository: Path, tmp_path: Path) -> None:
    more = {"DUOVEC_PACKAGE": str(repository / "engines/model"), "DUOVEC_PORT": "tcp://10.0.0.1:80"}
    done = start(repository, "serve.sh", "--cpu", **more)
    assert done.stdout.startswith("serves: "), done.stderr
    (tmp_path / "b.toml").write_text("port = 'x'")
    done = start(repository, "serve.sh", "--cpu", "--config", str(tmp_path / "b.toml"), **more)
    assert "b.toml, port: 'x' is not a port" in done.stderr


def test_the_words_that_are_checked_are_those_of_the_program() -> None:
    for name, words in flags.WORDS.items():
        row = rf"\| `--{name}` \| [^|]* \| ((?:[a-z0-9-]+,? )*?or [a-z0-9-]+)"
        [listed] = re.findall(row, flags.TABLE.read_text())
        assert re.split(",? or |, ", listed) == list(words)


FETCHED = "third_party/tensorrt-rtx/lib"
INSTALLED = "installed"


@pytest.mark.parametrize(
    ("words", "library", "has_gpu", "taken"),
    [
        ("", None, False, FETCHED),
        ("", "libtensorrt_rtx.so.1", False, INSTALLED),
        # TensorRT for data centres cannot build without a GPU.
        ("", "libnvinfer.so.10", False, FETCHED),
        ("", "libnvinfer.so.10", True, INSTALLED),
        ("--flavour tensorrt", "libnvinfer.so.11", True, INSTALLED),
        ("--flavour=tensorrt", None, True, INSTALLED),
        ("--flavour tensorrt-rtx", "libnvinfer.so.11", True, FETCHED),
        ("--flavour=tensorrt-rtx", "libtensorrt_rtx.so.1", True, INSTALLED),
        ("--tensorrt-library-dir /own", None, False, INSTALLED),
        ("--cuda-library-dir /own", None, False, FETCHED),
    ],
)
def test_the_library_fits_the_flavour(
    repository: Path, words: str, library: str | None, has_gpu: bool, taken: str
) -> None:
    done = build(repository, words, library, "echo 'GPU 0: stand-in'" if has_gpu else "exit 9")
    assert done[0] == f"serves: {repository / 'engines/model'} {words}".rstrip()
    # What the user says in any way beats them.
    cuda = f"DEFAULT_CUDA_LIBRARY_DIR={repository}/third_party/cuda/lib"
    fetched = [f"DEFAULT_TENSORRT_LIBRARY_DIR={repository / FETCHED}", cuda]
    named = [line for line in done if line.startswith("DEFAULT_")]
    assert named == (fetched if taken == FETCHED else [])


def build(repository: Path, words: str, library: str | None, smi: str) -> list[str]:
    """What the binary is told on a machine with that library and nvidia-smi."""
    tools = repository.parent / "tools"
    line = f"printf '\\t{library} (libc6,x86-64) => /lib/x\\n'" if library else ""
    program(tools / "nvidia-smi", smi)
    program(tools / "ldconfig", f"{LONG_LIST}\n{line}\n{LONG_LIST}")
    done = start(repository, "build_engine.sh", str(repository / "engines/model"), *words.split())
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_older_driver_gets_the_runtime_of_its_cuda(repository: Path) -> None:
    done = build(repository, "", None, "echo '| CUDA Version: 12.2 |'")
    assert f"DEFAULT_CUDA_LIBRARY_DIR={repository}/third_party/cuda-12/lib" in done


@pytest.mark.parametrize(
    ("driver", "wheel"),
    [
        ("echo '| Driver Version: 535.1  CUDA Version: 12.2 |'", "tensorrt-rtx-cu12-libs"),
        ("echo '| Driver Version: 580.1  CUDA Version: 13.0 |'", "tensorrt-rtx-cu13-libs"),
        ("echo 'no driver'; exit 9", "tensorrt-rtx-cu13-libs"),
    ],
)
def test_the_library_that_is_fetched_is_for_the_drivers_cuda(
    repository: Path, tmp_path: Path, driver: str, wheel: str
) -> None:
    tools = program(tmp_path / "tools/nvidia-smi", driver).parent
    said = shell(repository, "rtx_wheel", PATH=f"{tools}:{os.environ['PATH']}")
    assert said.startswith(f"{wheel}==")
