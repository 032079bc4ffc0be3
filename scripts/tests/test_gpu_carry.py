"""What docs/gpu.md packs for a machine with a GPU and without network is found there."""

import re
from pathlib import Path

import pytest
from program_files import SCRIPTS, program, run

from load.wrk import LIBRARY, Wrk

ROOT = SCRIPTS.parent
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
        (here / name).symlink_to(ROOT / name)
    [command] = re.findall(r"^\$ (tar .*)", (ROOT / "docs/gpu.md").read_text(), re.MULTILINE)
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


def test_wrk_may_have_its_library_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program(tmp_path / "tools/wrk", "").parent))
    assert Wrk.found().environment.get("LD_LIBRARY_PATH") != str(tmp_path / "tools")
    (tmp_path / "tools" / LIBRARY).touch()
    assert Wrk.found().environment["LD_LIBRARY_PATH"] == str(tmp_path / "tools")
