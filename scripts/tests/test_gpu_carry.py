"""What a machine with a GPU needs for its check is carried there, and found there."""

import subprocess
from pathlib import Path

import pytest
from program_files import SCRIPTS, program, run

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


def carry(tmp_path: Path, *libraries: str) -> subprocess.CompletedProcess[str]:
    """Packs libraries of these names, and a package."""
    package = tmp_path / "a model"
    package.mkdir()
    (package / "manifest.json").write_text('{"hidden_size": 384}')
    more = ("libz.so.1", "libcudart.so.13", "cuda/libcudart.so.13", "standins/libother.so.1")
    for name in (*libraries, *more):
        program(tmp_path / "lib" / name, "")
    words = ["--out", "gpu.tar.gz", "--package", package, "--library-dir", tmp_path / "lib"]
    words += ["--binary", program(tmp_path / "bin/duovec", BINARY)]
    words += ["--cuda-library-dir", tmp_path / "lib/cuda", "--standins", tmp_path / "lib/standins"]
    return run("bash", SCRIPTS / "gpu_carry.sh", *words, cwd=tmp_path)


def unpack(tmp_path: Path) -> Path:
    """The folder in which the archive is unpacked."""
    there = tmp_path / "there it is"
    there.mkdir()
    run("tar", "-xzf", tmp_path / "gpu.tar.gz", cwd=there)
    return there


def test_what_is_carried_arrives_as_it_was(tmp_path: Path) -> None:
    done = carry(tmp_path, "libnvinfer.so.11")
    assert done.returncode == 0, done.stderr
    there = unpack(tmp_path)
    for carried, original in [
        ("engines/a model/manifest.json", tmp_path / "a model/manifest.json"),
        ("target/release/duovec", tmp_path / "bin/duovec"),
        ("third_party/standins/libother.so.1", tmp_path / "lib/standins/libother.so.1"),
        ("tests/fixtures/tiny/manifest.json", SCRIPTS.parent / "tests/fixtures/tiny/manifest.json"),
    ]:
        assert (there / carried).read_bytes() == original.read_bytes()
    helped = run(there / "scripts/gpu_check.sh", "--help")
    assert helped.returncode == 0, helped.stderr


@pytest.mark.parametrize(
    ("libraries", "flavour"),
    [
        (["libnvinfer.so.11", "libnvonnxparser.so.11"], "tensorrt"),
        (["libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1"], "tensorrt-rtx"),
        (["libnvinfer.so.11", "libtensorrt_rtx.so.1"], "tensorrt"),
    ],
)
def test_carried_libraries_are_taken_by_the_printed_command(
    tmp_path: Path, libraries: list[str], flavour: str
) -> None:
    done = carry(tmp_path, *libraries)
    assert done.returncode == 0, done.stderr
    there, calls = unpack(tmp_path), tmp_path / "calls"
    ran = run("sh", "-c", done.stdout, cwd=there, CALLS=str(calls))
    report = (there / "gpu-report.md").read_text()
    assert ran.returncode == 1, ran.stderr
    folder = there / "third_party" / flavour / "lib"
    assert f"\nLibrary: {flavour} 1" in report
    assert f", {folder}\n" in report
    assert not (folder / "libz.so.1").exists()
    assert (folder / "libcudart.so.13").exists() == (flavour == "tensorrt")
    assert "did not come to its end" not in report
    plan = f"check engines/a model --engine {flavour} --log-level warn"
    cuda = there / "third_party/cuda/lib"
    named = f"{plan} --tensorrt-library-dir {folder} --cuda-library-dir {cuda}\n"
    assert named in calls.read_text()


def test_a_folder_without_libraries_of_tensorrt_is_not_carried(tmp_path: Path) -> None:
    done = carry(tmp_path)
    assert done.returncode == 1
    assert "has neither libnvinfer.so.* nor libtensorrt_rtx.so.*" in done.stderr
    assert not list(tmp_path.glob("gpu.tar.gz*"))
