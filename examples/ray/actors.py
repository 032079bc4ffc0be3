"""Actors that own a `duovec` process each, and the parts that Ray Data gives to them."""

from __future__ import annotations

import contextlib
import json
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
import ray

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


def embed(job: Job, parts: list[Part], address: str, wanted: int | None) -> None:
    """All parts, by so many actors: if nothing is wanted, one a GPU, or one a node without any."""
    # The nodes need no copy of this folder.
    for module in (corpus, sys.modules[__name__]):
        ray.cloudpickle.register_pickle_by_value(module)
    ray.init(address=address, log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    gpus = int(ray.cluster_resources().get("GPU", 0))
    nodes = sum(node["Alive"] for node in ray.nodes())
    actors = min(wanted or gpus or nodes, len(parts))
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
    try:
        for number, row in enumerate(done.iter_rows(), start=1):
            print(f"{number} of {len(parts)}: {row['name']}, {row['rows']} rows, {row['node']}")
            sys.stdout.flush()
    except ray.exceptions.RayError as error:
        # Its text ends with what an actor said.
        reason = str(error).strip().splitlines()[-1]
        sys.exit(f"{reason}\nfinished parts are kept: the same command goes on with the others")
