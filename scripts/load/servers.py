"""The programs under load: duovec, and duovec's own engine bench."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from default_package.errors import PackageError

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/clients"))
from server import Server, certificate, default_package, running  # noqa: E402, F401
from server import texts as project_texts  # noqa: E402, F401

MS_PER_SHAPE = 100
SAMPLE_S = 0.05
BENCH_TIMEOUT_S = 600


@contextlib.contextmanager
def duovec(arguments: list[str]) -> Iterator[Server]:
    """The server on a free port of the loopback interface."""
    package = default_package()
    try:
        with running("--package", package, "--host", "127.0.0.1", *arguments) as server:
            yield server
    except RuntimeError as error:
        raise PackageError(str(error)) from error


@contextlib.contextmanager
def own_memory(server: Server, every_s: float = SAMPLE_S) -> Iterator[list[float]]:
    """Samples of the resident memory that is the server's own, in MB (10^6 bytes), from now on.

    Mapped files are left out: pages of the word table come with the words of the texts, whoever
    sends them, and the system takes them back.
    """
    ended = threading.Event()
    samples: list[float] = []

    def sample() -> None:
        while not ended.is_set():
            samples.append(server.own_megabytes())
            ended.wait(every_s)

    with ThreadPoolExecutor(1) as pool:
        sampling = pool.submit(sample)
        try:
            yield samples
        finally:
            ended.set()
        sampling.result()


def bench(texts: Path, seen: dict[str, Any], small: bool) -> dict[str, Any]:
    """`duovec bench` with the engine of the server whose /health was `seen`.

    The ceiling for the texts, the time of single texts and of full batches.
    """
    tuning = seen["tuning"]
    binary = os.environ.get("DUOVEC_TEST_BINARY", str(ROOT / "target/release/duovec"))
    most = tuning["max_batch_tokens"]
    command = [binary, "bench", default_package(), "--json", "--texts", str(texts)]
    command += ["--engine", seen["engine"], "--precision", tuning["precision"]]
    command += ["--max-batch-tokens", str(most), "--log-level", "warn"]
    # Shapes are timed as this server runs them under load; the texts are run in every way.
    command += ["--workers", str(tuning["lanes"][0]["lanes"])]
    if threads := tuning["threads_per_worker"]:
        command += ["--threads-per-worker", str(threads)]
    if small:
        command += ["--shapes", "1x32,1x128"]
    command += ["--ms-per-shape", str(1 if small else MS_PER_SHAPE)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=BENCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise PackageError(f"duovec bench did not end within {BENCH_TIMEOUT_S} s") from None
    if ran.returncode != 0:
        last = (ran.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise PackageError(f"duovec bench failed: {last}")
    return json.loads(ran.stdout)
