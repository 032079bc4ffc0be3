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
from dockerfile import Container, defaults, stages
from server import ROOT, ran

CPU, GPU = ROOT / "deploy/Dockerfile", ROOT / "deploy/Dockerfile.tensorrt"
START = ROOT / "deploy/container/start.sh"
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
    of_nvidia = {"CUDA", "LIBRARIES"} if file == GPU else set()
    assert defaults(file).keys() == {"RUST_TAG", "DEBIAN_TAG", *of_nvidia}
    assert "latest" not in text
    toolchain = (ROOT / "rust-toolchain.toml").read_text()
    [channel] = re.findall(r'^channel = "([\d.]+)\.0"$', toolchain, re.M)
    assert defaults(file)["RUST_TAG"].startswith(f"{channel}-")
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


COMPAT = ["libcuda.so.1", "libcuda.so.580.95.05", "libnvidia-ptxjitcompiler.so.580.95.05"]


def nvidias(root: Path, folder: str, compat: str, cuda: int = 13) -> list[str]:
    """Files where NVIDIA's images have their libraries, and others; the names of the libraries."""
    libraries, runtime = root / folder, root / f"usr/local/cuda-{cuda}.0/lib64"
    runtime.mkdir(parents=True)
    libraries.mkdir(parents=True, exist_ok=True)
    (root / "usr/local/cuda").symlink_to(f"cuda-{cuda}.0")
    names = []
    for at, name in [
        (libraries, "libnvinfer.so.11"),
        (libraries, "libnvinfer_builder_resource_sm90.so.11"),
        (libraries, "libnvinfer_lean.so.11"),
        (libraries, "libnvonnxparser.so.11"),
        (runtime, f"libcudart.so.{cuda}"),
    ]:
        (at / f"{name}.4.0").write_text("a library")
        (at / name).symlink_to(f"{name}.4.0")
        names += [name, f"{name}.4.0"]
    (libraries / "libnvinfer.so").symlink_to("libnvinfer.so.11")
    (libraries / "libnvinfer_builder_resource_win_sm90.so.11.4.0").write_text("for Windows")
    (libraries / "libnvinfer_plugin.so.11").write_text("not needed")
    (root / compat).mkdir(parents=True, exist_ok=True)
    for name in COMPAT[1:]:
        (root / compat / name).write_text("of a later driver")
    (root / compat / COMPAT[0]).symlink_to(COMPAT[1])
    return sorted(names)


def take_libraries(bare: Path, **arguments: str) -> None:
    """The first stage: what it finds in NVIDIA's image."""
    Container(bare, arguments=defaults(GPU) | arguments).carry_out(stages(GPU)[0])


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("folder", "compat"),
    [
        ("usr/lib/x86_64-linux-gnu", "usr/local/cuda-13.0/compat"),
        ("usr/lib/aarch64-linux-gnu", "usr/local/cuda-13.0/compat"),
        ("usr/lib64", "usr/local/cuda-13.0/compat/lib.real"),
        ("usr/local/tensorrt/lib", "usr/local/cuda-13.0/compat"),
    ],
)
def test_the_image_for_gpus_finds_nvidias_libraries(bare: Path, folder: str, compat: str) -> None:
    expected = nvidias(bare, folder, compat)
    take_libraries(bare)
    assert names_in(bare / "libraries") == expected
    assert (bare / "libraries/libnvinfer.so.11").is_symlink(), "nothing is there twice"
    # The container toolkit takes a file of a driver's name, and no link, from this very folder.
    assert names_in(bare / "compat") == COMPAT
    assert not (bare / "compat" / COMPAT[1]).is_symlink()


def test_the_libraries_may_be_in_a_folder_that_the_build_names(bare: Path) -> None:
    expected = nvidias(bare, "opt/trt", "usr/local/cuda-13.0/compat")
    with pytest.raises(AssertionError, match="LIBRARIES"):
        take_libraries(bare)
    shutil.rmtree(bare / "libraries")
    shutil.rmtree(bare / "compat", ignore_errors=True)
    take_libraries(bare, LIBRARIES="/opt/trt /usr/local/cuda/lib64")
    assert names_in(bare / "libraries") == expected


def test_an_image_without_nvidias_libraries_is_no_base(bare: Path) -> None:
    nvidias(bare, "usr/lib/x86_64-linux-gnu", "usr/local/cuda-13.0/compat")
    for file in bare.glob("usr/lib/x86_64-linux-gnu/libnvonnxparser.so.*"):
        file.unlink()
    with pytest.raises(AssertionError, match="libnvonnxparser is in none of"):
        take_libraries(bare)


def test_an_image_without_what_few_need_is_a_base(bare: Path) -> None:
    expected = nvidias(bare, "usr/lib/x86_64-linux-gnu", "usr/local/cuda-13.0/compat")
    shutil.rmtree(bare / "usr/local/cuda-13.0/compat")
    for file in bare.glob("usr/lib/x86_64-linux-gnu/libnvinfer_lean.so.*"):
        file.unlink()
    take_libraries(bare)
    assert names_in(bare / "libraries") == [name for name in expected if "lean" not in name]
    assert names_in(bare / "compat") == []


def test_the_build_names_the_cuda_of_nvidias_image(bare: Path) -> None:
    nvidias(bare, "usr/lib/x86_64-linux-gnu", "usr/local/cuda-12.0/compat", cuda=12)
    with pytest.raises(AssertionError, match="--build-arg CUDA="):
        take_libraries(bare)
    for folder in ("libraries", "compat"):
        shutil.rmtree(bare / folder)
    take_libraries(bare, CUDA="12")


def of_last_stage(**arguments: str) -> dict[str, str]:
    """The variables of the image for GPUs."""
    container = Container(Path("/"), arguments=defaults(GPU) | arguments)
    container.carry_out([step for step in stages(GPU)[-1] if step[0] == "ENV"])
    return container.variables


def starts_on(required: str, cuda: float, driver: int, brand: str) -> bool:
    """What NVIDIA's container toolkit makes of it: spaces say or, commas say and."""
    host = {"cuda": cuda, "driver": driver, "brand": brand}

    def holds(one: str) -> bool:
        name, relation, value = re.fullmatch(r"(\w+)(>=|<|=)([\w.]+)", one).groups()
        if relation == "=":
            return host[name] == value
        return host[name] >= float(value) if relation == ">=" else host[name] < float(value)

    return any(all(map(holds, both.split(","))) for both in required.split())


@pytest.mark.parametrize(
    ("build", "cuda", "driver", "brand", "starts"),
    [
        # Its driver has the image's CUDA.
        ("13", 13.0, 580, "geforce", True),
        ("13", 13.1, 590, "nvidia", True),
        ("12", 12.2, 535, "geforce", True),
        ("12", 11.4, 470, "tesla", False),
        # The libraries in /usr/local/cuda/compat are for drivers of these branches.
        ("13", 12.2, 535, "tesla", True),
        ("13", 12.8, 570, "nvidia", True),
        ("13", 12.3, 545, "nvidia", False),
        ("13", 11.4, 470, "tesla", False),
        # They are for data-centre GPUs.
        ("13", 12.8, 570, "geforce", False),
    ],
)
def test_the_image_starts_only_where_its_cuda_can_run(
    build: str, cuda: float, driver: int, brand: str, starts: bool
) -> None:
    required = of_last_stage(CUDA=build)["NVIDIA_REQUIRE_CUDA"]
    assert starts_on(required, cuda, driver, brand) == starts


def test_the_image_for_gpus_ends_when_a_batch_never_does() -> None:
    """Docker starts an ended container again, and leaves an unhealthy one as it is."""
    assert of_last_stage()["DUOVEC_EXIT_ON_STUCK"] == "true"


def test_the_image_for_gpus_copies_its_package_once_and_serves_from_there(
    release: Path, bare: Path, tmp_path: Path
) -> None:
    nvidias(bare, "usr/lib/x86_64-linux-gnu", "usr/local/cuda-13.0/compat")
    take_libraries(bare)
    shutil.rmtree(bare / "usr/local/cuda-13.0")
    (bare / "usr/local/cuda").unlink()
    others = {("build", "/release"): release}
    for name in ("libraries", "compat"):
        others["libraries", f"/{name}"] = (bare / name).rename(tmp_path / name)
    container = Container(bare, others, defaults(GPU))
    container.carry_out(stages(GPU)[-1])
    assert names_in(bare / "usr/local/cuda/compat") == COMPAT
    # The toolkit adds the folder to the loader's where the driver is older, and needs these files.
    assert (bare / "etc/ld.so.cache").is_file()
    folders = [file.read_text() for file in (bare / "etc/ld.so.conf.d").iterdir()]
    assert folders and not [one for one in folders if "compat" in one]
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


def program(path: Path, lines: str) -> None:
    """A shell's program."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    """The folder of the copies."""
    folder = tmp_path / "plans"
    folder.mkdir()
    return folder


def start(folder: Path, *words: str, plans: Path) -> subprocess.CompletedProcess[str]:
    """The entry point with a package of one file and a program that tells what it gets."""
    package = folder / "package"
    package.mkdir(exist_ok=True)
    (package / "manifest.json").write_text("{}")
    program(folder / "bin/duovec", 'echo "$DUOVEC_PACKAGE $*"')
    variables = {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "DUOVEC_PACKAGE": str(package),
        "PLANS": str(plans),
    }
    return ran("sh", START, *words, code=None, env=variables)


def test_a_start_removes_what_killed_ones_left(tmp_path: Path, plans: Path) -> None:
    done = start(tmp_path, "serve", plans=plans)
    [copied] = plans.iterdir()
    assert done.stdout == f"{copied} serve\n", done.stderr
    young, other = plans / f"{copied.name}.young", plans / "somebody-els.e"
    left = [plans / f"{name}.AbC123" for name in (copied.name, "0123456789ab")]
    # Also where the copy is there already: another start made it soon after one was killed.
    for there in (True, False):
        for folder in (young, other, *left):
            folder.mkdir(exist_ok=True)
            os.utime(folder, (0, 0) if folder != young else None)
        if not there:
            shutil.rmtree(copied)
        assert start(tmp_path, "serve", plans=plans).returncode == 0
        assert set(plans.iterdir()) == {copied, young, other}


def test_starts_of_one_name_at_once_leave_each_others_copies_alone(
    tmp_path: Path, plans: Path
) -> None:
    # Another container starts while the first one copies.
    program(
        tmp_path / "bin/cp",
        '/bin/cp "$@" || exit\nfor mine; do :; done\n'
        f'mkdir {tmp_path}/other 2>/dev/null && sh {START} serve\n: >"$mine/last"',
    )
    done = start(tmp_path, "serve", plans=plans)
    [copied] = plans.iterdir()
    assert done.stdout == f"{copied} serve\n" * 2, done.stderr
    assert names_in(copied) == ["last", "manifest.json"]
    assert copied.stat().st_mode & 0o777 == 0o755, "other users may read it"


def test_a_package_that_is_replaced_while_it_is_copied_gets_no_name(
    tmp_path: Path, plans: Path
) -> None:
    other = f"echo {{ }} >{tmp_path}/package/manifest.json"
    program(tmp_path / "bin/cp", f'/bin/cp "$@"\n{other}')
    done = start(tmp_path, "serve", plans=plans)
    assert (done.returncode, names_in(plans)) == (1, [])
    assert f"{tmp_path}/package was replaced while it was copied" in done.stderr


def test_a_copy_is_on_the_disk_before_it_has_its_name(tmp_path: Path, plans: Path) -> None:
    program(tmp_path / "bin/sync", f'ls "$2" >{tmp_path}/synced')
    assert start(tmp_path, "serve", plans=plans).returncode == 0
    assert (tmp_path / "synced").read_text() == "manifest.json\n"


def test_a_copy_that_fails_is_not_left(tmp_path: Path, plans: Path) -> None:
    program(tmp_path / "bin/cp", '/bin/cp "$@"\nexit 1')
    for name in ("0123456789ab", "other"):
        (plans / name).mkdir()
    done = start(tmp_path, "serve", plans=plans)
    assert done.returncode == 1
    assert names_in(plans) == ["0123456789ab", "other"]
    # The folder may be full of copies that nobody needs.
    said, *copies = done.stderr.splitlines()
    assert f"cannot be copied to {plans}" in said
    assert [line.split()[-1] for line in copies] == ["0123456789ab"]


def test_a_copy_has_the_time_of_its_last_start(tmp_path: Path, plans: Path) -> None:
    start(tmp_path, "serve", plans=plans)
    [copied] = plans.iterdir()
    os.utime(copied, (0, 0))
    start(tmp_path, "serve", plans=plans)
    assert copied.stat().st_mtime > 0


def test_a_start_copies_only_what_it_needs_and_where_it_may(tmp_path: Path) -> None:
    plans = tmp_path / "nowhere"
    package = tmp_path / "package"
    for words in (["--version"], ["help", "serve"], []):
        assert start(tmp_path, *words, plans=plans).stdout.startswith(f"{package} ")
    done = start(tmp_path, "serve", plans=plans)
    assert done.returncode == 1
    assert f"the folder of plans, {plans}, must belong to user {os.getuid()}" in done.stderr
