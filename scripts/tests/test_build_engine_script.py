"""Which TensorRT scripts/build_engine.sh builds with."""

import os
from pathlib import Path

import pytest
from gpu_machine import LONG_LIST, make_repository, shell, start
from program_files import program

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
    tmp_path: Path, words: str, library: str | None, has_gpu: bool, taken: str
) -> None:
    done, root = build(tmp_path, words, library, "echo 'GPU 0: stand-in'" if has_gpu else "exit 9")
    assert done[0] == f"serves: {root / 'engines/model'} {words}".rstrip()
    # What the user says in any way beats them.
    cuda = f"DEFAULT_CUDA_LIBRARY_DIR={root}/third_party/cuda/lib"
    fetched = [f"DEFAULT_TENSORRT_LIBRARY_DIR={root / FETCHED}", cuda]
    named = [line for line in done if line.startswith("DEFAULT_")]
    assert named == (fetched if taken == FETCHED else [])


def build(tmp_path: Path, words: str, library: str | None, smi: str) -> tuple[list[str], Path]:
    """What the binary is told on a machine with that library and nvidia-smi, and where."""
    tools = tmp_path / "tools"
    line = f"printf '\\t{library} (libc6,x86-64) => /lib/x\\n'" if library else ""
    program(tools / "nvidia-smi", smi)
    root = make_repository(tmp_path)
    program(tools / "ldconfig", f"{LONG_LIST}\n{line}\n{LONG_LIST}")
    done = start(root, "build_engine.sh", str(root / "engines/model"), *words.split())
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), root


def test_an_older_driver_gets_the_runtime_of_its_cuda(tmp_path: Path) -> None:
    done, root = build(tmp_path, "", None, "echo '| CUDA Version: 12.2 |'")
    assert f"DEFAULT_CUDA_LIBRARY_DIR={root}/third_party/cuda-12/lib" in done


@pytest.mark.parametrize(
    ("driver", "wheel"),
    [
        ("echo '| Driver Version: 535.1  CUDA Version: 12.2 |'", "tensorrt-rtx-cu12-libs"),
        ("echo '| Driver Version: 580.1  CUDA Version: 13.0 |'", "tensorrt-rtx-cu13-libs"),
        ("echo 'no driver'; exit 9", "tensorrt-rtx-cu13-libs"),
    ],
)
def test_the_library_that_is_fetched_is_for_the_drivers_cuda(
    tmp_path: Path, driver: str, wheel: str
) -> None:
    program(tmp_path / "tools/nvidia-smi", driver)
    root = make_repository(tmp_path)
    path = f"{tmp_path / 'tools'}:{os.environ['PATH']}"
    assert shell(root, "rtx_wheel", PATH=path).startswith(f"{wheel}==")
