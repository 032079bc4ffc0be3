"""What the scripts share on the command line: the Python environment, which lib/setup.sh makes, the
wheel's options, one-sentence errors, and how a package is put in place."""

import argparse
import errno
import fcntl
import glob
import hashlib
import importlib
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from .choices import DEFAULT_PACKAGE
from .errors import PackageError

SCRIPTS = Path(__file__).resolve().parents[1]
REQUIREMENTS = SCRIPTS / "requirements.txt"
TEST_REQUIREMENTS = SCRIPTS / "requirements-test.txt"
OF_LOAD = ("DUOVEC_PACKAGE", "DUOVEC_TEST_BINARY")
"""Variables that name what a command drives which puts load on a server."""
STARTED = "DUOVEC_ENVIRONMENT_STARTED"
"""Set for the process in the environment, so that one that lacks a package cannot loop."""
ROOT = SCRIPTS.parent
DEFAULT_FOLDER = ROOT / "engines" / DEFAULT_PACKAGE["model_id"]  # where the default package is
CHUNK_BYTES = 1 << 20
LOCK, REPLACED = "duovec.lock", "replaced"
"""In a working folder: its process's lock, and the package that makes way for the new one."""
PACKAGE_LOCK = ".lock"
"""In a package: what a process locks that adds to it, as crates/model/src/package/edit.rs does."""


def say(line: str) -> None:
    """One progress line for the person who waits."""
    print(line, file=sys.stderr, flush=True)


def run(
    work: str,
    options: argparse.Namespace,
    *lists: Path,
    answered: Callable[[argparse.Namespace], bool] = lambda _: False,
    load: bool = False,
) -> int:
    """The work of a command: `run(options)` of the module `work`; exit status as in `guarded`. The
    module is imported here, in an environment that has its packages, and not at the head of the
    command: so any Python answers --help and refuses what was mistyped. There is nothing to do
    where `answered` says so. A command that puts `load` on a server gets a package and a binary."""

    def body() -> None:
        if answered(options):
            return
        enter(*lists, load=load)
        importlib.import_module(work).run(options)

    return guarded(body)


def guarded(body: Callable[[], None]) -> int:
    """Runs `body`; exit status 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    # A polite kill ends like Ctrl-C: clean up, then exit.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        body()
    except PackageError as error:
        say(f"error: {error}")
        return 1
    except OSError as error:
        told = f"{error.filename or 'a file'}: {error.strerror or error}"
        full = "the disk is full: free some room and run again"
        say(f"error: {full if error.errno == errno.ENOSPC else told}")
        return 1
    except KeyboardInterrupt:
        say("interrupted: nothing was changed")
        return 130
    return 0


def add_wheel_options(parser: argparse.ArgumentParser) -> None:
    """--wheel and --cache."""
    parser.add_argument("--wheel", type=Path, help="the wheel, when it is already on this machine")
    parser.add_argument("--cache", type=Path, help="folder that keeps the downloaded wheel")


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    sha256 = hashlib.sha256()
    # Python 3.10, which scripts/gpu_check.sh may run with, has no `file_digest`.
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            sha256.update(chunk)
    return sha256.hexdigest()


def cache_folder() -> Path:
    """That of lib/setup.sh."""
    home = os.environ.get("HOME") or "/tmp"
    general = os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
    return Path(os.environ.get("DUOVEC_CACHE_DIR") or f"{general}/duovec").absolute()


def enter(*more: Path, load: bool = False) -> None:
    """Goes on where REQUIREMENTS and the lists `more` are installed, in the versions they name, and
    for a command of `load` where OF_LOAD are set. Elsewhere this process becomes the same command
    in the environment of lib/setup.sh, which is made first if need be, as scripts/serve.sh makes
    it."""
    # The programs that a command starts are to see nothing of it.
    is_started = os.environ.pop(STARTED, None) is not None
    lists = (REQUIREMENTS, *more, *([TEST_REQUIREMENTS] if load else []))
    absent = [name for path in lists for name in missing(path)]
    if load:
        absent += [name for name in OF_LOAD if name not in os.environ]
    if not absent:
        return
    if is_started:
        cure = f"remove {sys.prefix} and run again"
        raise PackageError(f"the Python environment lacks {', '.join(absent)}: {cure}")
    os.environ[STARTED] = "1"
    wanted = ["--load"] if load else map(str, lists)
    command = ["bash", str(SCRIPTS / "lib/python.sh"), *wanted, "--", *sys.argv]
    os.execvp(command[0], command)


def missing(path: Path) -> list[str]:
    """Lines `name==version` of a list that this interpreter does not have; a name may end in
    extras, as in `package[extra]`."""
    lines = (line.partition("#")[0].strip() for line in path.read_text("utf-8").splitlines())
    absent = []
    for line in filter(None, lines):
        name, version = line.split("==")
        here = importlib.metadata.distributions(name=name.partition("[")[0])
        if version not in [one.version for one in here][:1]:
            absent.append(line)
    return absent


@contextmanager
def working_folder(beside: Path) -> Iterator[Path]:
    """A folder on the disk of `beside`, so that results can be renamed into place. It is gone
    afterwards in any case; where the process is killed, when the next one comes."""
    beside.parent.mkdir(parents=True, exist_ok=True)
    clear_left(beside)
    prefix, place = f".{beside.name}.", beside.parent
    with TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as work:
        unnamed = Path(work, f"{LOCK}.new")
        with unnamed.open("w") as lock:
            # A disk that knows no locks keeps what killed processes leave.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Whoever finds it finds it locked.
                unnamed.rename(unnamed.with_name(LOCK))
            yield Path(work)


def clear_left(beside: Path) -> None:
    """Removes the working folders of processes that were killed; the package that one had moved
    away is put back where nothing took its place."""
    random = "[a-z0-9_]" * 8
    for path in beside.parent.glob(f"{glob.escape(f'.{beside.name}.')}{random}/{LOCK}"):
        # A process that runs has the lock.
        with suppress(OSError), path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            replaced = path.with_name(REPLACED)
            if replaced.exists() and not beside.exists():
                os.replace(replaced, beside)
            shutil.rmtree(path.parent, ignore_errors=True)


@contextmanager
def locked(folder: Path, work: str) -> Iterator[None]:
    """No other process that `work` names changes the folder meanwhile: this one locks the file that
    servers lock in a package while they build a plan."""
    path = folder / PACKAGE_LOCK
    while True:
        with _lock_file(path) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another process that {work}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                say(f"no lock on {folder}, which no other process may change meanwhile: {error}")
            # Who had the lock may have put another folder there.
            if path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                yield
                return


def _lock_file(path: Path) -> IO[str]:
    """To be written if that may be: another user may have made it."""
    try:
        return path.open("w")
    except PermissionError:
        return path.open()


@contextmanager
def replacing(out: Path, free_bytes_min: int = 0) -> Iterator[Path]:
    """An empty folder, which takes the place of the package at `out` when all went well."""
    started = time.monotonic()
    is_package = (out / "manifest.json").is_file()
    if out.exists() and not is_package and (not out.is_dir() or any(out.iterdir())):
        raise PackageError(f"{out} exists and is not a package: choose another --out")
    if out.is_mount():
        raise PackageError(f"{out} is a mount point, which cannot be replaced: name a folder in it")
    out.parent.mkdir(parents=True, exist_ok=True)
    demand_room(out.parent, free_bytes_min)
    with working_folder(out) as work:
        folder = work / "package"
        folder.mkdir()
        yield folder
        put_in_place(folder, out, work)
    for path in sorted(out.iterdir()):
        say(f"  {path.stat().st_size:>11}  {path.name}")
    say(f"done in {time.monotonic() - started:.0f} s: {out}")


def demand_room(folder: Path, needed: int, cure: str = "") -> None:
    """Refuses a disk that has fewer bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        megabytes = f"{needed // 10**6} MB are needed"
        raise PackageError(f"only {free // 10**6} MB are free at {folder}, {megabytes}{cure}")


def put_in_place(package: Path, out: Path, work: Path) -> None:
    """Two renames: readers find the old package or the new one, never a mixture."""
    # Once it has its name it is trusted, also after a loss of power.
    subprocess.run(["sync", "--file-system", work], check=True)
    replaced = work / REPLACED
    try:
        if out.exists():
            os.replace(out, replaced)
        os.replace(package, out)
    except BaseException:
        if replaced.exists() and not out.exists():
            os.replace(replaced, out)
        raise
