#!/usr/bin/env python3
"""Embeds texts in Parquet files on a Ray cluster: dense and sparse vectors, in Parquet again.

Each actor owns a `duovec` process on a Unix socket. A part of the output has some rows of one row
group of the input, with all their columns. It is written whole or not at all, by a name that
depends on the input only: the same command goes on where it was, and no row is lost or twice.

Every node needs the program, the model package and the Python packages (see README.md), and the
folders of input and output under the same paths.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import corpus
from corpus import Job, Part
from duovec import Client, DuovecError, Paired

START_TIMEOUT_S = 900
"""A plan for a GPU may have to be built, and a large model to be read."""
SERVER_TRIES = 3
PARALLEL = 4
"""Requests under way in each actor, so that its server always has work."""


class OwnServer:
    """A `duovec` process that ends with this one, and a client of it."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="duovec-")
        path, self._log = f"{self._folder.name}/socket", Path(self._folder.name, "log")
        # The system ends the server with this process, however that ends: nothing else would, and
        # it would hold the device.
        bound = ["setpriv", "--pdeathsig", "KILL", "--", *command, "--unix-socket", path]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*bound, "--port", "0"], stderr=log)
        self._http = httpx.Client(transport=httpx.HTTPTransport(uds=path))
        self.client = Client("http://duovec", http=self._http, parallel=PARALLEL)
        self._wait_ready()

    def _wait_ready(self) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while self.lives() and time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                if self._http.get("http://duovec/health", timeout=5).status_code == 200:
                    return
            time.sleep(0.05)
        last = self._log.read_text(errors="replace").strip()[-500:]
        self.close()
        raise RuntimeError(f"duovec did not become ready on {socket.gethostname()}: {last}")

    def lives(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._http.close()
        self._folder.cleanup()


class Embedder:
    """What Ray starts once for each device or node. It starts another one where one is lost."""

    def __init__(self, job: Job) -> None:
        import ray

        self._job = job
        self._node = ray.get_runtime_context().get_node_id()
        self._server = OwnServer(job.command)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, Any]:
        """Embed one part; Ray calls it again for a part of which it lost the answer."""
        part = Part(**json.loads(str(batch["part"][0])))
        path = Path(self._job.out, part.name)
        if not path.exists():
            rows = corpus.with_vectors(corpus.read(part), self._job.text, self._both)
            corpus.write_whole(rows, path)
        return {"name": [part.name], "rows": [part.rows], "node": [self._node]}

    def _both(self, texts: list[str]) -> Paired:
        for left in reversed(range(SERVER_TRIES)):
            try:
                input_type: Any = self._job.input_type
                return self._server.client.both(texts, input_type=input_type, bulk=True)
            except DuovecError:
                # A server that lives has a reason; one that was killed is started again.
                if self._server.lives() or not left:
                    raise
                self._server.close()
                self._server = OwnServer(self._job.command)
        raise AssertionError("the last try returns or raises")


def embed(job: Job, parts: list[Part], typed: argparse.Namespace) -> None:
    """All parts, on every device or node of the cluster."""
    import ray

    # The nodes need no copy of this folder.
    ray.cloudpickle.register_pickle_by_value(corpus)
    ray.init(address=typed.address, log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    gpus = int(ray.cluster_resources().get("GPU", 0))
    nodes = sum(node["Alive"] for node in ray.nodes())
    actors = min(typed.actors or gpus or nodes, len(parts))
    done = ray.data.from_items(
        [{"part": json.dumps(asdict(part))} for part in parts], override_num_blocks=len(parts)
    ).map_batches(
        Embedder,
        fn_constructor_args=(job,),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=2),
        num_cpus=1,
        num_gpus=1 if gpus else None,
    )
    for number, row in enumerate(done.iter_rows(), start=1):
        print(f"{number} of {len(parts)}: {row['name']}, {row['rows']} rows, {row['node']}")
        sys.stdout.flush()


def main() -> None:
    """Plan, leave out what is there, embed the rest."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", help="Parquet files")
    parser.add_argument("--out", type=Path, required=True, help="folder of the parts")
    parser.add_argument("--text", default="text", help="the column that is embedded")
    parser.add_argument("--input-type", default="passage", choices=("passage", "query"))
    parser.add_argument("--part-rows", type=int, default=50_000, help="rows of a part, at most")
    parser.add_argument("--package", required=True, help="model package")
    parser.add_argument("--duovec", default="duovec", help="the program")
    parser.add_argument("--address", default="auto", help="of the Ray cluster; local starts one")
    parser.add_argument("--actors", type=int, help="a GPU each, or a node each where none has one")
    parser.epilog = "What follows -- goes to duovec serve."
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    typed = parser.parse_args(sys.argv[1:end])
    typed.arguments = sys.argv[end + 1 :]
    parts = corpus.planned(typed.files, typed.text, typed.part_rows)
    settings = ("text", "input_type", "part_rows", "package", "arguments")
    about = {name: getattr(typed, name) for name in settings}
    sizes = {Path(file).name: os.path.getsize(file) for file in sorted(typed.files)}
    corpus.claim(typed.out, about | {"bytes of the inputs": sizes})
    missing = [part for part in parts if not (typed.out / part.name).exists()]
    print(f"{len(missing)} of {len(parts)} parts are to be made", flush=True)
    command = (typed.duovec, "serve", "--package", typed.package, *typed.arguments)
    if missing:
        embed(Job(str(typed.out), typed.text, typed.input_type, command), missing, typed)
    corpus.sweep(typed.out)
    print(f"{sum(part.rows for part in parts)} rows in {len(parts)} parts in {typed.out}")


if __name__ == "__main__":
    main()
