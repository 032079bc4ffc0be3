"""The parts of scripts/edge_bench.sh and scripts/soak.sh that need no server of ours, and the one
client of scripts/bench_http.sh."""

import asyncio
import itertools
import math
import multiprocessing
import random
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from edge_bench import clients, measured
from http_bench import single
from load import aside
from load.connection import Answer, Broken, Connection
from load.open_loop import Asked, goodput
from load.servers import certificate
from soak.tally import Tally, growth

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def served(
    handler: Handler, client: Callable[[str], Awaitable[Any]], secure: ssl.SSLContext | None = None
) -> Any:
    """What a client finds at the address of a server that handles each connection so."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    async def whole() -> Any:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=secure)
        async with server:
            host, port = server.sockets[0].getsockname()
            return await client(f"{'https' if secure else 'http'}://{host}:{port}")

    return asyncio.run(whole())


def blown(
    handler: Handler, storm: clients.Storm, came: list, count: int, *secure: ssl.SSLContext
) -> int:
    """How often the server ended a connection of the storm until `came` has so many."""

    async def client(url: str) -> int:
        ours, theirs = multiprocessing.Pipe()
        blowing = asyncio.create_task(clients.blow(aside.Signals(theirs), url, storm))
        while len(came) < count:
            await asyncio.sleep(0.01)
        ours.send("stop")
        return await blowing

    return served(handler, client, *secure)


def asked_once(answers: list[bytes]) -> str:
    """What a checking client says of a server that answers with these pieces."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in answers:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)

    try:
        answer = served(handler, lambda url: Connection(url).ask(b"GET / HTTP/1.1\r\n\r\n"))
    except Broken as error:
        return str(error)
    return f"{answer.status} {answer.json()}"


def test_an_answer_must_be_whole_and_alone() -> None:
    assert asked_once([ANSWER]) == "200 {}"
    assert asked_once([ANSWER[:20], ANSWER[20:]]) == "200 {}"
    assert "ended after" in asked_once([ANSWER[:-1]])
    assert "bytes behind" in asked_once([ANSWER + b"HTTP/1.1 408"])


def test_what_comes_without_a_question_is_told() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await writer.drain()

    async def client(url: str) -> None:
        connection = Connection(url)
        await connection.ask(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(30):
            while not connection._wire.got:
                await asyncio.sleep(0.01)
        await connection.ask(b"GET / HTTP/1.1\r\n\r\n")

    with pytest.raises(Broken, match="nobody had asked"):
        served(handler, client)


def test_an_early_refusal_of_a_large_body_is_read() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(REFUSAL)
        await writer.drain()
        await reader.read(1 << 20)

    wire = b"\r\n\r\n" + b"a" * 9_000_000
    assert served(handler, lambda url: clients._send_large(url, wire)) == 429


async def counting(signals: aside.Signals, start: int) -> int:
    signals.up()
    await signals.wait()
    return start + 1


async def failing(signals: aside.Signals) -> None:
    signals.up()
    raise ValueError("no")


def test_a_storm_sends_heads_and_comes_back_when_it_is_ended() -> None:
    came: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        came.append(await reader.readuntil(b"\r\n\r\n"))

    assert blown(handler, clients.Storm(2, 0, 1000), came, 4) >= 2
    assert all(b"content-length: 1000\r\n" in head for head in came)


def test_a_storm_of_http_2_waits_for_its_window_and_sends_each_body_on_a_stream_of_its_own(
    tmp_path: Path,
) -> None:
    came: list[tuple[int, int, bytes]] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def frame() -> tuple[int, int, bytes]:
            head = await reader.readexactly(clients.FRAME_HEAD_BYTES)
            payload = await reader.readexactly(int.from_bytes(head[:3]))
            return head[3], int.from_bytes(head[5:]), payload

        await reader.readexactly(len(clients.PREFACE))
        assert (await frame())[0] == clients.SETTINGS
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        window = clients._frame(clients.WINDOW_UPDATE, 0, 0, bytes(4))
        writer.write(clients._frame(clients.SETTINGS, 0, 0, b"") + window)
        for _ in range(3):
            came.extend([await frame(), await frame()])

    made, key = certificate(tmp_path, "IP:127.0.0.1")
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secure.load_cert_chain(made, key)
    assert blown(handler, clients.Storm(1, 3, 4, b"body"), came, 12, secure) >= 1
    frames = [(kind, stream) for kind, stream, _ in came[:6]]
    kinds = clients.HEADERS, clients.DATA
    assert frames == [(kind, stream) for stream in (1, 3, 5) for kind in kinds]
    assert all(b"\x0econtent-length\x014" in payload for _, _, payload in came[0:6:2])
    assert all(payload == b"body" for _, _, payload in came[1:6:2])


def test_a_load_runs_in_another_process_until_it_is_stopped() -> None:
    with aside.aside(counting, 41) as ended:
        assert ended.found is None
    assert ended.found == 42
    with pytest.raises(aside.PackageError, match="no"), aside.aside(failing):
        # It must not matter whether the process is gone before it is told to stop.
        for child in multiprocessing.active_children():
            child.join()


def test_goodput_counts_what_was_in_time_while_requests_came() -> None:
    def answer(due: float, ended: float, status: int = 200) -> Asked:
        return Asked(due, due, ended, status)

    answers = [answer(0, 1), answer(0, 3), answer(9, 11), answer(1, 2, 429)]
    assert goodput(answers, 2.0, 10.0) == pytest.approx(0.1)
    assert math.isnan(measured.ratio(1, 0))


def test_documents_differ_and_have_their_size() -> None:
    found = measured.documents(["One sentence.", "Ein Satz für alle."])
    # What a server reads of them differs too, whatever follows.
    assert len({text[:16] for text in found}) == measured.DOCUMENTS
    sizes = {len(text.encode()) for text in found}
    assert max(sizes) <= measured.DOCUMENT_BYTES < min(sizes) + 8


ALLOWED = 0.05
"""The default of --growth."""


@pytest.mark.parametrize(
    ("megabytes", "least", "most"),
    [
        # A slow leak is seen through the scatter, and scatter alone is no growth.
        (lambda number, settled: settled + 0.3 * number, ALLOWED, 1.0),
        (lambda _, settled: settled, -ALLOWED, ALLOWED),
        # A step that stays is growth, and so is a peak that has not gone back at the end.
        (lambda number, settled: settled + 4 * (number >= 8), ALLOWED, 1.0),
        (lambda number, settled: 90.0 if number == 19 else settled, ALLOWED, 1.0),
    ],
)
def test_growth_from_the_first_rests_to_the_last(
    megabytes: Callable[[int, float], float], least: float, most: float
) -> None:
    """Of the default's twenty, whose memory scatters by as much as a server's was seen to."""
    chance = random.Random(1)
    samples = [megabytes(number, 54 + chance.uniform(-3, 3)) for number in range(20)]
    assert least < growth(samples) < most
    assert growth(samples[:1]) == 0


def test_a_wrong_answer_is_told_with_its_moment_its_time_and_the_load() -> None:
    seconds = iter([100.0, 173.25, 180.0])
    tally = Tally(clock=lambda: next(seconds), load=lambda: "3.10, 5 threads")
    tally.problem("ask: 503 no_worker", began=172.0)
    tally.problem("ask: 503 no_worker", began=179.5)
    assert tally.ended["wrong"] == 2
    assert tally.lines() == [
        "wrong, 2 times: ask: 503 no_worker",
        "wrong at 73.2 s, took 1.250 s, load 3.10, 5 threads: ask: 503 no_worker",
        "wrong at 80.0 s, took 0.500 s, load 3.10, 5 threads: ask: 503 no_worker",
    ]
    assert Tally().load().endswith(" threads"), "it is that of this machine where nobody says"


def test_what_an_answer_tells_is_its_code_or_its_beginning() -> None:
    refused = b'{"error":{"message":"wait","code":"no_worker"}}'
    assert Answer(503, b"", refused).told == "no_worker"
    assert Answer(200, b"", b'{"data":[]}').told == '{"data":[]}'
    assert Answer(502, b"", b"<html>\xff").told == "<html>\ufffd"


def answered(timing: str, content: bytes = b"{}") -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(content)}\r\n{timing}date: now\r\n\r\n"
    return head.encode() + content


def test_the_stage_compute_is_read_from_the_head_only() -> None:
    timing = "server-timing: parse;dur=0.036, compute;dur=7.020, select;dur=0.003\r\n"
    assert single.compute_seconds(answered(timing)) == pytest.approx(0.00702)
    last = "Server-Timing: recompute;dur=9, compute;dur=12345.678\r\n"
    assert single.compute_seconds(answered(last)) == pytest.approx(12.345678)
    assert single.compute_seconds(answered("", b"compute;dur=1.000\r\n\r\n")) is None
    assert single.compute_seconds(b"compute;dur=1.000") is None


def test_one_client_pairs_each_latency_with_compute_of_the_same_answer() -> None:
    closed = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Every other request takes ten times as long.
        for milliseconds in itertools.cycle((2, 20)):
            if not await reader.read(1 << 16):
                return closed.set()
            await asyncio.sleep(milliseconds / 1e3)
            timing = f"server-timing: queue;dur=9.000, compute;dur={milliseconds}.000\r\n"
            writer.write(answered(timing))

    async def client(url: str) -> list[tuple[float, float | None]]:
        # On a busy machine only two answers came in a second.
        pairs = await asyncio.to_thread(single.run, url, [b"a", b"b", b"c"], 3)
        await asyncio.wait_for(closed.wait(), 10)
        return pairs

    found = served(handler, client)
    told = [compute for _, compute in found]
    assert told == list(itertools.islice(itertools.cycle((0.002, 0.02)), len(found)))
    assert len(found) > 3 and all(took > compute for took, compute in found)
