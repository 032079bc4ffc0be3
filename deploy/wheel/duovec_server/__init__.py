"""The command `duovec` of the wheel: prepares what the program needs, then becomes the program.

OpenVINO's libraries are those of its own wheel. The default package is made in the cache folder at
the first start, as scripts/serve.sh makes it in a clone.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "duovec"
SCRIPTS = HERE / "scripts"
sys.path.insert(0, str(SCRIPTS))
from default_package.command import cache_folder  # noqa: E402
from model_export import flags  # noqa: E402

CPUINFO = Path("/proc/cpuinfo")
WITH_A_MODEL = ("serve", "bench", "embed", "batch", "adopt")
"""Commands that may have to make a package; `check` only looks at what is there."""
PREPARED = ("openvino_library_dir", "package", "precision")
PLAIN = "libopenvino_c.so"
PACKAGE_MB = 700
"""What make_default_package.py asks for."""


class CannotStart(Exception):
    """One sentence with the cure."""


def say(line: str) -> None:
    """Progress, for the person who waits."""
    print(f"==> {line}", file=sys.stderr, flush=True)


def main() -> None:
    """Ends as the program ends; 1 with one sentence where it cannot be started."""
    arguments = sys.argv[1:]
    try:
        check_glibc()
        arguments = with_package(arguments)
        prepared = prepare(arguments)
    except CannotStart as refusal:
        sys.exit(f"duovec: {refusal}")
    os.execve(PROGRAM, ["duovec", *arguments], {**prepared, **os.environ})


def with_package(arguments: list[str]) -> list[str]:
    """The arguments with --package in the place of --model, whose package is made if need be.

    `pull` has the model's name behind it, and ends with the path of its package.
    """
    try:
        wishes, others = flags.split(arguments)
        pulls = others[:1] == ["pull"]
        if pulls:
            if len(others) != 2 or others[1].startswith("-"):
                raise ValueError("pull takes the name of one model: duovec pull NAME[@REVISION]")
            wishes = [f"--model={others[1]}", *wishes]
        flags.check(wishes, others)
        if wishes and (folder := package_word(others)):
            raise ValueError(f"--model and {folder} name two models: give one of them")
    except ValueError as refusal:
        raise CannotStart(refusal) from refusal
    if pulls:
        print(made(*wishes))
        sys.exit()
    if not wishes or asks_for_help(others):
        return others
    return [*others, "--package", made(*wishes)]


def package_word(arguments: list[str]) -> str | None:
    """The package's folder, which may be a word of its own behind `bench` and `check`."""
    words = arguments[1:] if arguments[:1] in (["bench"], ["check"]) else []
    return next((word for word in words if Path(word, "manifest.json").exists()), None)


def asks_for_help(arguments: list[str]) -> bool:
    """The program answers, and nothing is to be made."""
    return not {"-h", "--help"}.isdisjoint(arguments)


def made(*wishes: str) -> str:
    """The package of a model, with these flags."""
    need_to_write(cache_folder())
    command = [sys.executable, SCRIPTS / "export_onnx.py", "--precision", "fp32", *wishes]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout.strip()


def prepare(arguments: list[str]) -> dict[str, str]:
    """Defaults of settings that the user did not give, as variables of the program."""
    given, _ = flags.settings(arguments, *PREPARED)
    model = arguments[:1] and arguments[0] in WITH_A_MODEL
    if asks_for_help(arguments) or not (model or arguments[:1] == ["check"]):
        return {}
    check_machine()
    cache = cache_folder()
    defaults = {}
    if not given["openvino_library_dir"]:
        defaults["DUOVEC_DEFAULT_OPENVINO_LIBRARY_DIR"] = str(libraries(cache))
    if not (given["package"] or package_word(arguments)):
        package = cache / f"multilingual-e5-small-{recipe()}"
        defaults["DUOVEC_DEFAULT_PACKAGE"] = str(package)
        if model:
            make(package, eight_bits=given["precision"] == "int8")
    return defaults


def check_glibc() -> None:
    """pip refuses an older one, but an environment may have been copied."""
    tag = importlib.metadata.distribution("duovec-server").read_text("WHEEL") or ""
    needed = re.search(r"manylinux_(\d+)_(\d+)", tag)
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    if needed and tuple(map(int, version.split(".")[:2])) < tuple(map(int, needed.groups())):
        raise CannotStart(
            f"this program needs glibc {'.'.join(needed.groups())} or later, and this machine has "
            f"{name} {version}: use a newer distribution, or build the program from its sources"
        )


def check_machine() -> None:
    """What the model's arithmetic needs and no wheel brings."""
    try:
        ctypes.CDLL("libstdc++.so.6")
    except OSError as error:
        raise CannotStart(f"{error}: install it (Debian's package: libstdc++6)") from error
    if platform.machine() == "x86_64" and not re.search(r"\bavx2\b", CPUINFO.read_text()):
        say("this processor has no AVX2: the model runs, several times slower than with it")


def need_to_write(cache: Path) -> None:
    """Only where something must be made: a folder that has everything may be read-only."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=cache).close()
    except OSError as error:
        raise CannotStart(
            f"cannot write to the cache folder {cache} ({error.strerror}): make room there, or "
            "name another folder with DUOVEC_CACHE_DIR"
        ) from error


def libraries(cache: Path) -> Path:
    """OpenVINO's, by the names that the loader looks for: its wheel has them with versions only."""
    [module] = importlib.util.find_spec("openvino").submodule_search_locations
    version = importlib.metadata.version("openvino")
    key = hashlib.sha256(f"{module} {version}".encode()).hexdigest()[:16]
    folder = cache / f"openvino-{key}"
    if not folder.exists():
        need_to_write(cache)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            new = Path(work, "links")
            new.mkdir()
            for file in Path(module, "libs").iterdir():
                (new / file.name).symlink_to(file)
            if not (new / PLAIN).exists():
                [versioned] = new.glob(f"{PLAIN}.*")
                (new / PLAIN).symlink_to(versioned.name)
            with contextlib.suppress(OSError):  # Another start may have been first.
                new.rename(folder)
    return folder


def recipe() -> str:
    """A default package is made anew when this changes."""
    files = [SCRIPTS / "requirements.txt", SCRIPTS / "make_default_package.py"]
    for folder in ("default_package", "families"):
        files += (file for file in (SCRIPTS / folder).iterdir() if file.is_file())
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in sorted(files))).hexdigest()[:16]


def make(package: Path, *, eight_bits: bool) -> None:
    """The default package, once, however many servers start."""
    if package.exists() and (not eight_bits or any(package.glob("model.int8.*"))):
        return
    need_to_write(package.parent)
    with (package.parent / "package.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not package.exists():
            free = shutil.disk_usage(package.parent).free // 10**6
            if free < PACKAGE_MB:
                raise CannotStart(
                    f"the default model needs {PACKAGE_MB} MB in {package.parent}, {free} MB are "
                    "free: make room there, or name another folder with DUOVEC_CACHE_DIR"
                )
            say(f"making the package {package} (a minute, once)")
            wheels = package.parent / "wheels"
            run("make_default_package.py", "--out", package, "--cache", wheels)
        if eight_bits and not any(package.glob("model.int8.*")):
            say(f"adding the graph in 8 bits to {package} (seconds, once)")
            run("quantize_package.py", "--quick", "--package", package)


def run(script: str, *arguments: str | Path) -> None:
    """A script of the wheel; one that fails has said why."""
    command = [sys.executable, SCRIPTS / script, *arguments]
    if status := subprocess.run(command, check=False).returncode:
        sys.exit(status)
