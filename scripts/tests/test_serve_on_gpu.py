"""scripts/serve.sh on a machine with a GPU: stand-ins for driver, wheels, cargo and binary."""

import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from gpu_machine import LONG_LIST, make_repository, start
from program_files import program

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
    information = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(file, "a library")
        archive.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{information}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{information}/RECORD", "")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """All is made already, but no binary with TensorRT."""
    return make_repository(tmp_path)


@pytest.fixture
def serve(repository: Path, tmp_path: Path) -> Serve:
    """Runs the command on a machine whose driver knows that CUDA; none without a driver."""

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
        return start(repository, "serve.sh", *words, "--port", "0", **variables, **more)

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
    # All of it is kept: the second start takes no wheel.
    shutil.rmtree(tmp_path / "wheels")
    again = serve(cuda=cuda)
    assert again.stdout == done.stdout
    assert "installing" not in again.stderr


def test_pips_own_settings_say_where_wheels_come_from(serve: Serve, tmp_path: Path) -> None:
    for one in WHEELS["13"]:
        wheel(tmp_path / "wheels", *one)
    done = serve()
    assert "BUILD_PLAN=true" in done.stdout, done.stderr
    lines = (tmp_path / "python.log").read_text().splitlines()
    installs = [line for line in lines if "pip install" in line]
    assert len(installs) == 1
    assert "index" not in installs[0] and "://" not in installs[0]


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


def test_a_graph_in_eight_bits_that_cannot_be_added_ends_the_start(
    serve: Serve, repository: Path
) -> None:
    (repository / "scripts/quantize_package.py").write_text("raise SystemExit('no such range')")
    done = serve("--precision=int8")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no such range\n" in done.stderr
    assert "the graph in 8 bits could not be added" in done.stderr


def test_a_wrong_flag_is_said_before_anything_is_made(serve: Serve, repository: Path) -> None:
    for words in [("--max-itmes", "3"), ("--max-itmes=3",), ("--max-items", "3", "4")]:
        done = serve(*words, cuda=None)
        assert done.returncode == 1
        [line] = done.stderr.splitlines()
        assert "is no flag of duovec serve" in line and words[-1 if len(words) > 2 else 0] in line
    assert not (repository / "cargo.log").exists()
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
