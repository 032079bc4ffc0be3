"""The client for programs with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import httpx

from duovec import call
from duovec.call import Caller, Kind, Result
from duovec.exchange import Outcome, Request, Send, exchange
from duovec.question import DenseOptions, Limits, Options, PairedOptions, SparseOptions
from duovec.vectors import Dense, Paired, Sparse


class AsyncClient:
    """As `Client`, with calls to be awaited; for one event loop."""

    def __init__(
        self,
        servers: str | Sequence[str] = "http://127.0.0.1:8080",
        *,
        api_key: str | None = None,
        model: str | None = None,
        limits: Limits | None = None,
        parallel: int | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """Settings as those of `Client`."""
        self._caller = Caller(servers, api_key, model, limits, parallel)
        self._owned = http is None
        self._http = http or httpx.AsyncClient()

    async def dense(self, texts: Sequence[str], **options: Unpack[DenseOptions]) -> Dense:
        """Dense vectors of length one, float32, shape (texts, dimensions)."""
        return await self._ask(call.DENSE, texts, options)

    async def sparse(self, texts: Sequence[str], **options: Unpack[SparseOptions]) -> list[Sparse]:
        """Lexical weights of each text."""
        return await self._ask(call.SPARSE, texts, options)

    async def tokens(self, texts: Sequence[str], **options: Unpack[Options]) -> list[Dense]:
        """Vectors of each text's tokens, of length one, float32, shape (tokens, dimensions)."""
        return await self._ask(call.TOKENS, texts, options)

    async def both(self, texts: Sequence[str], **options: Unpack[PairedOptions]) -> Paired:
        """Both of the same texts, each of which the model runs once."""
        return await self._ask(call.BOTH, texts, options)

    async def close(self) -> None:
        """Close the connections."""
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        """Use the client in a block that closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.close()

    async def _ask(
        self, kind: Kind[Result], texts: Sequence[str], options: Mapping[str, Any]
    ) -> Result:
        job = self._caller.job(kind, texts, options)
        slots = asyncio.Semaphore(self._caller.parallel)

        async def one(number: int) -> bytes:
            async with slots:
                return await self._answered(job.request(number))

        tasks = [asyncio.create_task(one(number)) for number in range(len(job.counts))]
        try:
            bodies = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return call.joined(kind, job, bodies)

    async def _answered(self, request: Request) -> bytes:
        """Do the steps of an exchange."""
        steps = exchange(self._caller.servers, request)
        outcome: Outcome = None
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Send):
                    outcome = await self._sent(step)
                else:
                    await asyncio.sleep(step.seconds)
                    outcome = None
        except StopIteration as end:
            body: bytes = end.value
            return body

    async def _sent(self, send: Send) -> Outcome:
        try:
            return await self._http.post(
                send.url, content=send.body, headers=send.headers, timeout=call.timeouts(send)
            )
        except httpx.TransportError as failure:
            return failure
