"""Refusals, broken servers and deadlines, with a clock of the test's own."""

from __future__ import annotations

import httpx
import pytest

from duovec import (
    BadRequestError,
    DeadlineError,
    OverloadedError,
    ServerError,
    UnavailableError,
    UnreachableError,
)
from duovec.exchange import Request, Send, Steps, Wait, exchange
from duovec.question import Urgency
from duovec.servers import Servers

A, B = "http://a:1", "http://b:1"
BROKEN = httpx.ConnectError("connection refused")


class Play:
    """One exchange, whose steps the test answers."""

    def __init__(self, servers: list[str], timeout_s: float = 30.0) -> None:
        self.now = 1000.0
        self.servers = Servers(servers, clock=lambda: self.now)
        self.begin(timeout_s)

    def begin(self, timeout_s: float = 30.0, first: int = 0) -> None:
        request = Request("/v1/embeddings", b"{}", {}, Urgency(False, timeout_s), first)
        self.steps: Steps = exchange(self.servers, request)
        self.step = next(self.steps)

    def at(self) -> str:
        """The server of the step."""
        assert isinstance(self.step, Send)
        return self.step.url.removesuffix("/v1/embeddings")

    def answer(self, outcome: httpx.Response | httpx.TransportError, after_s: float = 0.0) -> None:
        assert isinstance(self.step, Send)
        self.now += after_s
        self.step = self.steps.send(outcome)

    def wait(self) -> float:
        """Do the step, which is a wait, and tell its seconds."""
        assert isinstance(self.step, Wait)
        seconds = self.step.seconds
        self.now += seconds
        self.step = next(self.steps)
        return seconds

    def done(self) -> bytes:
        with pytest.raises(StopIteration) as end:
            self.answer(httpx.Response(200, content=b"done"))
        body: bytes = end.value.value
        return body


def refusal(
    status: int, code: str, retry_after: str | None = None, message: str = "no"
) -> httpx.Response:
    headers = {"x-request-id": "r7"} | ({"retry-after": retry_after} if retry_after else {})
    error = {"message": message, "type": "t", "param": "input", "code": code}
    return httpx.Response(status, json={"error": error}, headers=headers)


@pytest.mark.parametrize(("status", "code"), [(429, "queue_full"), (503, "loading")])
def test_a_refused_request_comes_back_when_the_server_says(status: int, code: str) -> None:
    play = Play([A])
    play.answer(refusal(status, code, "7"))
    assert play.wait() == 7
    assert play.at() == A
    assert play.done() == b"done"


def test_a_proxy_that_says_no_wait_is_not_asked_without_one() -> None:
    play = Play([A])
    play.answer(refusal(503, "", "0"))
    assert play.wait() == 0.25


def test_a_request_that_may_not_wait_so_long_fails_at_once() -> None:
    play = Play([A], timeout_s=5)
    with pytest.raises(OverloadedError) as refused:
        play.answer(refusal(429, "queue_full", "7", "too much to do"))
    error = refused.value
    assert (error.status, error.code, error.param) == (429, "queue_full", "input")
    assert (error.message, error.request_id, error.retry_after_s) == ("too much to do", "r7", 7)


def test_a_refused_request_goes_to_another_server_without_waiting() -> None:
    play = Play([A, B])
    assert play.at() == A
    play.answer(refusal(429, "queue_full", "7"), after_s=1)
    assert play.at() == B
    play.answer(refusal(429, "queue_full", "3"))
    assert play.wait() == 3
    assert play.at() == B
    assert play.done() == b"done"


def test_requests_go_to_servers_in_turn() -> None:
    play = Play([A, B])
    seen = []
    for _ in range(4):
        seen.append(play.at())
        play.done()
        play.begin()
    assert seen == [A, B, A, B]


def test_a_server_that_failed_is_asked_last_for_a_while() -> None:
    play = Play([A, B])
    play.answer(BROKEN)
    assert play.at() == B
    play.done()
    for _ in range(4):
        play.begin()
        assert play.at() == B
        play.done()
    play.now += 6
    play.begin()
    first = play.at()
    play.done()
    play.begin()
    assert {first, play.at()} == {A, B}


def test_an_overload_of_one_call_keeps_no_other_call_away() -> None:
    play = Play([A, B])
    play.answer(refusal(429, "queue_full", "7"))
    play.done()
    play.begin()
    assert play.at() == A


def test_a_single_server_that_cannot_be_reached_is_tried_three_times() -> None:
    play = Play([A])
    play.answer(BROKEN)
    assert play.wait() == 0.25
    play.answer(BROKEN)
    assert play.wait() == 1.0
    with pytest.raises(UnreachableError, match="http://a:1 cannot be reached") as failed:
        play.answer(BROKEN)
    assert failed.value.__cause__ is BROKEN


def test_a_dead_server_does_not_end_a_wait_for_a_living_one() -> None:
    play = Play([A, B])
    play.answer(BROKEN)
    play.answer(refusal(429, "queue_full", "9"))
    waited = 0.0
    while not (isinstance(play.step, Send) and play.at() == B):
        if isinstance(play.step, Wait):
            waited += play.wait()
        else:
            play.answer(BROKEN)
    assert waited == 9
    assert play.done() == b"done"


def test_the_server_is_told_the_time_that_is_left() -> None:
    play = Play([A, B], timeout_s=10)
    assert isinstance(play.step, Send)
    assert play.step.headers["x-request-timeout-ms"] == "10000"
    play.answer(refusal(503, "draining", "1"), after_s=4)
    assert isinstance(play.step, Send)
    assert play.step.headers["x-request-timeout-ms"] == "6000"
    assert play.step.timeout_s == 6


def test_the_server_is_told_a_longer_time_than_it_grants_by_default() -> None:
    for timeout_s, told in [(3600.0, "3600000"), (float("inf"), "1000000000")]:
        play = Play([A], timeout_s=timeout_s)
        assert isinstance(play.step, Send)
        assert play.step.headers["x-request-timeout-ms"] == told
        assert play.step.timeout_s == timeout_s


def test_a_request_whose_time_went_by_in_refusals_was_refused_and_is_not_wrong() -> None:
    too_short = refusal(400, "request_timeout_too_short")
    play = Play([A], timeout_s=5)
    play.answer(refusal(429, "queue_full", "4"))
    play.wait()
    with pytest.raises(OverloadedError):
        play.answer(too_short)
    play.begin(timeout_s=1)
    with pytest.raises(BadRequestError):
        play.answer(too_short)


@pytest.mark.parametrize(
    "first", [BROKEN, refusal(429, "queue_full", "4"), refusal(503, "draining", "4")]
)
def test_a_request_that_waited_for_nobody_is_told_that_its_time_is_too_short(
    first: httpx.Response | httpx.TransportError,
) -> None:
    play = Play([A, B], timeout_s=0.02)
    play.answer(first)
    assert play.at() == B
    with pytest.raises(BadRequestError):
        play.answer(refusal(400, "request_timeout_too_short"))


def test_no_answer_in_time_is_a_deadline_error() -> None:
    play = Play([A])
    with pytest.raises(DeadlineError, match="did not answer in time"):
        play.answer(httpx.ReadTimeout("slow"), after_s=30)


def test_an_expired_request_is_a_deadline_error_with_its_code() -> None:
    play = Play([A])
    with pytest.raises(DeadlineError) as late:
        play.answer(refusal(504, "deadline_exceeded"))
    assert getattr(late.value, "code", None) == "deadline_exceeded"


def test_a_lost_batch_is_run_again_and_a_wrong_request_is_not() -> None:
    play = Play([A])
    play.answer(refusal(500, "engine_failed"))
    play.wait()
    play.answer(refusal(500, "engine_failed"))
    play.wait()
    with pytest.raises(ServerError):
        play.answer(refusal(500, "engine_failed"))
    play.begin()
    with pytest.raises(BadRequestError):
        play.answer(refusal(400, "invalid_input"))


def test_a_message_counts_texts_as_the_call_does() -> None:
    play = Play([A])
    play.begin(first=256)
    with pytest.raises(BadRequestError) as wrong:
        play.answer(
            refusal(400, "context_length_exceeded", message="input[3] and item 4 are too long")
        )
    assert wrong.value.message == "input[259] and item 260 are too long"


def test_a_proxys_error_page_is_shown_in_short() -> None:
    play = Play([A])
    page = httpx.Response(503, text="<html>" + "x" * 1000, headers={"retry-after": "60"})
    with pytest.raises(UnavailableError, match="not an answer of duovec's: <html>x") as failed:
        play.answer(page)
    assert failed.value.code is None
    assert len(str(failed.value)) < 400
