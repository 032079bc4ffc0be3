"""The client for programs without asyncio."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, Self, Unpack

import httpx

from duovec import call
from duovec.call import Caller, Job, Kind, Result
from duovec.errors import DuovecError
from duovec.exchange import Outcome, Request, Send, exchange
from duovec.question import DenseOptions, Limits, Options, PairedOptions, SparseOptions
from duovec.vectors import Dense, Paired, Sparse


class Client:
    """Embeddings of one or several duovec servers. Safe to use by many threads.

    Each call sends as many requests as its texts need, repeats those that were refused or met a
    broken server within their time, and returns everything in the order of the texts. It raises a
    `DuovecError`, or a TypeError or ValueError, before anything is sent, for texts that no server
    takes.
    """

    def __init__(
        self,
        servers: str | Sequence[str] = "http://127.0.0.1:8080",
        *,
        api_key: str | None = None,
        model: str | None = None,
        limits: Limits | None = None,
        parallel: int | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        """Settings of a client.

        `servers`: one URL, or several of servers with the same model. `model`: a name that the
        server checks; None is whatever it serves. `limits`: how large requests are. `parallel`:
        requests of one call under way at once; None is two for each server. `http`: a client of
        your own, for certificates, proxies or Unix sockets; you close it.
        """
        self._caller = Caller(servers, api_key, model, limits, parallel)
        self._owned = http is None
        self._http = http or httpx.Client()

    def dense(self, texts: Sequence[str], **options: Unpack[DenseOptions]) -> Dense:
        """Dense vectors of length one, float32, shape (texts, dimensions)."""
        return self._ask(call.DENSE, texts, options)

    def sparse(self, texts: Sequence[str], **options: Unpack[SparseOptions]) -> list[Sparse]:
        """Lexical weights of each text."""
        return self._ask(call.SPARSE, texts, options)

    def tokens(self, texts: Sequence[str], **options: Unpack[Options]) -> list[Dense]:
        """Vectors of each text's tokens, of length one, float32, shape (tokens, dimensions).

        Only of models that have them: BGE-M3, made with --token-vectors.
        """
        return self._ask(call.TOKENS, texts, options)

    def both(self, texts: Sequence[str], **options: Unpack[PairedOptions]) -> Paired:
        """Both of the same texts, each of which the model runs once."""
        return self._ask(call.BOTH, texts, options)

    def check(self, texts: Sequence[str]) -> None:
        """Raise TypeError or ValueError, with the place, for a text that no server takes."""
        self._caller.job(call.BOTH, texts, {})

    def close(self) -> None:
        """Close the connections."""
        if self._owned:
            self._http.close()

    def __enter__(self) -> Self:
        """Use the client in a block that closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def _ask(self, kind: Kind[Result], texts: Sequence[str], options: Mapping[str, Any]) -> Result:
        job = self._caller.job(kind, texts, options)
        numbers = range(len(job.counts))
        stop = threading.Event()
        if len(numbers) <= 1:
            return call.joined(kind, job, [self._answered(job.request(n), stop) for n in numbers])
        with ThreadPoolExecutor(min(self._caller.parallel, len(numbers)), "duovec") as pool:
            tasks = [pool.submit(self._part, job, number, stop) for number in numbers]
            try:
                # The first failure ends the call, whichever request it is of.
                for task in wait(tasks, return_when=FIRST_EXCEPTION).done:
                    task.result()
                bodies = [task.result() for task in tasks]
            except BaseException:
                stop.set()
                raise
        return call.joined(kind, job, bodies)

    def _part(self, job: Job, number: int, stop: threading.Event) -> bytes:
        """One of several requests; not begun or repeated any more when another one failed."""
        if stop.is_set():
            raise DuovecError("another request of the call failed")
        return self._answered(job.request(number), stop)

    def _answered(self, request: Request, stop: threading.Event) -> bytes:
        """Do the steps of an exchange; a wait ends early when `stop` is set."""
        steps = exchange(self._caller.servers, request)
        outcome: Outcome = None
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Send):
                    outcome = self._sent(step)
                elif stop.wait(step.seconds):
                    raise DuovecError("another request of the call failed")
                else:
                    outcome = None
        except StopIteration as end:
            body: bytes = end.value
            return body

    def _sent(self, send: Send) -> Outcome:
        try:
            return self._http.post(
                send.url, content=send.body, headers=send.headers, timeout=call.timeouts(send)
            )
        except httpx.TransportError as failure:
            return failure
