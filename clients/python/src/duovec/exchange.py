"""One request until it is answered: which server, when again, when to give up. It does no I/O."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import httpx

from duovec import errors
from duovec.question import LONGEST_S, Urgency
from duovec.servers import Servers

# A server that cannot be reached is tried so often before a request goes without it.
TRIES = 3
# Waits before the second and the third try, where the server names none.
BACKOFF_S = (0.25, 1.0)
# For so long other requests prefer other servers.
ASIDE_S = 5.0
# The engine lost a batch; the next one is most likely well.
PASSING_CODES = ("engine_failed",)
# The model needs longer than the time that is left.
TOO_SHORT = "request_timeout_too_short"


@dataclass(frozen=True)
class Request:
    """What is sent to whichever server."""

    path: str
    body: bytes
    headers: dict[str, str]
    urgency: Urgency
    # The place of its first text among those of the call.
    first: int = 0


@dataclass(frozen=True)
class Send:
    """To do: send, and tell the response or the failure; `timeout_s` is all there is."""

    url: str
    body: bytes
    headers: dict[str, str]
    timeout_s: float


@dataclass(frozen=True)
class Wait:
    """To do: nothing for so long."""

    seconds: float


Outcome = httpx.Response | httpx.TransportError | None
Steps = Generator[Send | Wait, Outcome, bytes]


class _Tries:
    """What one request met so far."""

    def __init__(self, servers: Servers, deadline: float) -> None:
        self.servers = servers
        self.deadline = deadline
        self.due: dict[str, float] = {}
        self.failures: dict[str, int] = {}
        self.error: errors.DuovecError | None = None
        # Why the last wait was needed.
        self.waited_for: errors.DuovecError | None = None

    def next(self) -> tuple[str, float]:
        """The server to ask, and the seconds until then."""
        now = self.servers.clock()
        order = self.servers.in_order()
        server = min(order, key=lambda url: max(self.due.get(url, now), now))
        wait_s = max(self.due.get(server, now) - now, 0.0)
        if self.error is not None and now + wait_s >= self.deadline:
            raise self.error
        return server, wait_s

    def failed(self, server: str, error: errors.DuovecError) -> None:
        """Try it again after a moment, but not for ever."""
        self.error = error
        tries = self.failures[server] = self.failures.get(server, 0) + 1
        wait_s = BACKOFF_S[tries - 1] if tries < TRIES else float("inf")
        self.due[server] = self.servers.clock() + wait_s

    def refused(self, server: str, error: errors.ApiError) -> None:
        """Come back when the server says."""
        if error.retry_after_s is None:
            self.failed(server, error)
            return
        self.error = error
        wait_s = max(error.retry_after_s, BACKOFF_S[0])
        self.due[server] = self.servers.clock() + wait_s


def exchange(servers: Servers, request: Request) -> Steps:
    """The steps until the body of an answer with status 200; raises a DuovecError otherwise."""
    tries = _Tries(servers, servers.clock() + request.urgency.timeout_s)
    while True:
        server, wait_s = tries.next()
        if wait_s > 0:
            yield Wait(wait_s)
            tries.waited_for = tries.error
        left_s = tries.deadline - servers.clock()
        if left_s <= 0:
            raise tries.error or errors.DeadlineError("the time of the call is over")
        url = server + request.path
        outcome = yield Send(url, request.body, _headers(request, left_s), left_s)
        if isinstance(outcome, httpx.Response):
            if outcome.status_code == 200:
                servers.welcome(server)
                return outcome.content
            _refusal(tries, server, errors.from_response(outcome, url, request.first))
        elif isinstance(outcome, httpx.TransportError):
            _no_answer(tries, server, outcome)


def _headers(request: Request, left_s: float) -> dict[str, str]:
    """Those of this try: the server is told the time that is left."""
    timeout_ms = max(1, int(min(left_s, LONGEST_S) * 1000))
    return request.headers | {"x-request-timeout-ms": str(timeout_ms)}


def _refusal(tries: _Tries, server: str, error: errors.ApiError) -> None:
    match error:
        case errors.OverloadedError():
            # Others may still be taken there: an overload is one of a class and of a deadline.
            tries.refused(server, error)
        case errors.UnavailableError():
            tries.servers.put_aside(server, error.retry_after_s or ASIDE_S)
            tries.refused(server, error)
        case errors.ServerError() if error.code in PASSING_CODES:
            tries.failed(server, error)
        case errors.BadRequestError() if error.code == TOO_SHORT and tries.waited_for:
            # The time went by in waits: their reason says why the call fails.
            raise tries.waited_for
        case _:
            raise error


def _no_answer(tries: _Tries, server: str, failure: httpx.TransportError) -> None:
    if isinstance(failure, httpx.TimeoutException) and not isinstance(
        failure, httpx.ConnectTimeout
    ):
        raise errors.DeadlineError(
            f"{server} did not answer in time; send fewer texts, or set timeout_s higher"
        ) from failure
    if isinstance(failure, httpx.UnsupportedProtocol | httpx.ProxyError):
        raise errors.UnreachableError(f"{server} cannot be asked: {failure}") from failure
    tries.servers.put_aside(server, ASIDE_S)
    error = errors.UnreachableError(f"{server} cannot be reached: {failure!r}")
    error.__cause__ = failure
    tries.failed(server, error)
