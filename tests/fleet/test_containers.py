"""deploy/Dockerfile and deploy/Dockerfile.tensorrt: their last stages in a bare Debian, with the
release that their first stages make. hadolint reads them in scripts/test.sh. Not run: the images
that they begin with, so the compiler's and NVIDIA's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

import programs
from dockerfile import Container, stages
from server import ROOT, ran

CPU, GPU = ROOT / "deploy/Dockerfile", ROOT / "deploy/Dockerfile.tensorrt"
QUICK = ["--workers", "1", "--max-batch-tokens", "64"]
NOBODY = "65532"


def settings() -> dict[str, str]:
    """What a test's container has beyond the image's variables."""
    [port] = programs.free_ports(1)
    return {"DUOVEC_HOST": "127.0.0.1", "DUOVEC_PORT": str(port)}


def assert_answers(more: dict[str, str]) -> None:
    url = f"http://127.0.0.1:{more['DUOVEC_PORT']}/v1/embeddings"
    answer = httpx.post(url, json={"input": "The cat sleeps."}, timeout=60)
    assert answer.status_code == 200
    assert len(answer.json()["data"][0]["embedding"]) == 384


@pytest.mark.parametrize("file", [CPU, GPU], ids=["cpu", "gpu"])
def test_images_are_pinned_and_end_as_nobody(file: Path) -> None:
    text = file.read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.M)
    known = {"rust:${RUST_TAG}", "debian:${DEBIAN_TAG}", "${TENSORRT_IMAGE}", "scratch"}
    assert set(bases) <= known
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.M))
    assert defaults.keys() == {"RUST_TAG", "DEBIAN_TAG"}
    assert "latest" not in text
    toolchain = (ROOT / "rust-toolchain.toml").read_text()
    [channel] = re.findall(r'^channel = "([\d.]+)\.0"$', toolchain, re.M)
    assert defaults["RUST_TAG"].startswith(f"{channel}-")
    last = stages(file)[-1]
    assert [words for name, words in last if name == "USER"] == [f"{NOBODY}:{NOBODY}"]
    after = [name for name, _ in last][[name for name, _ in last].index("USER") :]
    assert after == ["USER", "HEALTHCHECK", "ENTRYPOINT", "CMD"]


def test_the_image_for_cpus_serves(release: Path, bare: Path, tmp_path: Path) -> None:
    container = Container(bare, {("build", "/release"): release})
    container.carry_out(stages(CPU)[-1])
    more = settings()
    with container.running(QUICK, more, tmp_path / "log") as process:
        assert_answers(more)
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert re.search(rf"^Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t", status, re.M)


def nvidias(root: Path) -> list[str]:
    """Files where NVIDIA's image has its libraries, and others; the names of the libraries."""
    libraries, cuda = root / "usr/lib/x86_64-linux-gnu", root / "usr/local/cuda-13.0/lib64"
    cuda.mkdir(parents=True)
    (root / "usr/local/cuda").symlink_to("cuda-13.0")
    names = []
    for folder, name in [
        (libraries, "libnvinfer.so.11"),
        (libraries, "libnvinfer_builder_resource_sm90.so.11"),
        (libraries, "libnvonnxparser.so.11"),
        (cuda, "libcudart.so.13"),
    ]:
        (folder / f"{name}.4.0").write_text("a library")
        (folder / name).symlink_to(f"{name}.4.0")
        names += [name, f"{name}.4.0"]
    (libraries / "libnvinfer.so").symlink_to("libnvinfer.so.11")
    (libraries / "libnvinfer_builder_resource_win_sm90.so.11.4.0").write_text("for Windows")
    (libraries / "libnvinfer_plugin.so.11").write_text("not needed")
    return sorted(names)


def test_the_image_for_gpus_copies_its_package_once_and_serves_from_there(
    release: Path, bare: Path, tmp_path: Path
) -> None:
    expected = nvidias(bare)
    first = Container(bare)
    first.carry_out(stages(GPU)[0])
    libraries = (bare / "libraries").rename(tmp_path / "libraries")
    assert sorted(path.name for path in libraries.iterdir()) == expected
    assert (libraries / "libnvinfer.so.11").is_symlink(), "nothing is there twice"
    container = Container(
        bare, {("build", "/release"): release, ("libraries", "/libraries"): libraries}
    )
    container.carry_out(stages(GPU)[-1])
    plans = bare / container.settings["VOLUME"].lstrip("/")
    # Without a GPU there is nothing to build, and `auto` takes the CPU.
    more = settings() | {"DUOVEC_ENGINE": "auto"}
    seen = set()
    for _ in range(2):
        with container.running(QUICK, more, tmp_path / "log"):
            assert_answers(more)
        [copied] = plans.glob("*/manifest.json")
        seen.add((copied, copied.stat().st_ino))
    assert len(seen) == 1, "the second start takes the copy of the first"
    assert copied.stat().st_uid == int(NOBODY)


def test_an_image_without_nvidias_libraries_is_no_base(bare: Path) -> None:
    nvidias(bare)
    for file in (bare / "usr/lib/x86_64-linux-gnu").glob("libnvonnxparser.so.*"):
        file.unlink()
    with pytest.raises(AssertionError, match="libnvonnxparser is not in TENSORRT_IMAGE"):
        Container(bare).carry_out(stages(GPU)[0])


def start(folder: Path, *words: str, plans: Path) -> subprocess.CompletedProcess[str]:
    """The entry point with a package of one file and a program that tells what it gets."""
    package, program = folder / "package", folder / "bin/duovec"
    for path, text in [
        (package / "manifest.json", "{}"),
        (program, '#!/bin/sh\necho "$DUOVEC_PACKAGE $*"\n'),
    ]:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    program.chmod(0o755)
    variables = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "DUOVEC_PACKAGE": str(package),
        "PLANS": str(plans),
    }
    return ran("sh", ROOT / "deploy/container/start.sh", *words, code=None, env=variables)


def test_a_start_removes_what_killed_ones_left(tmp_path: Path) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    done = start(tmp_path, "serve", plans=plans)
    [copied] = plans.iterdir()
    assert done.stdout == f"{copied} serve\n", done.stderr
    shutil.rmtree(copied)
    left, young = plans / f"{copied.name}.host", plans / f"{copied.name}.other"
    left.mkdir()
    young.mkdir()
    os.utime(left, (0, 0))
    assert start(tmp_path, "serve", plans=plans).returncode == 0
    assert set(plans.iterdir()) == {copied, young}


def test_a_start_copies_only_what_it_needs_and_where_it_may(tmp_path: Path) -> None:
    plans = tmp_path / "nowhere"
    package = tmp_path / "package"
    for words in (["--version"], ["help", "serve"], []):
        assert start(tmp_path, *words, plans=plans).stdout.startswith(f"{package} ")
    done = start(tmp_path, "serve", plans=plans)
    assert done.returncode == 1
    assert f"the folder of plans, {plans}, must belong to user {os.getuid()}" in done.stderr
