"""The parts of scripts/edge_bench.sh and scripts/soak.sh that need no server of ours."""

import asyncio
import math
import multiprocessing
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edge_bench import clients, measured
from load import aside
from load.connection import Broken, Connection
from load.open_loop import Asked
from load.servers import certificate

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler, secure: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=secure)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{'https' if secure else 'http'}://{host}:{port}"


def asked_once(answers: list[bytes]) -> str:
    """What a checking client says of a server that answers with these pieces."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in answers:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)

    async def whole() -> str:
        async with serving(handler) as url:
            answer = await Connection(url).ask(b"GET / HTTP/1.1\r\n\r\n")
            return f"{answer.status} {answer.json()}"

    try:
        return asyncio.run(whole())
    except Broken as error:
        return str(error)


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

    async def whole() -> None:
        async with serving(handler) as url:
            connection = Connection(url)
            await connection.ask(b"GET / HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(30):
                while not connection._wire.got:
                    await asyncio.sleep(0.01)
            await connection.ask(b"GET / HTTP/1.1\r\n\r\n")

    with pytest.raises(Broken, match="nobody had asked"):
        asyncio.run(whole())


def test_an_early_refusal_of_a_large_body_is_read() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(REFUSAL)
        await writer.drain()
        await reader.read(1 << 20)

    async def whole() -> int:
        async with serving(handler) as url:
            return await clients._send_large(url, b"\r\n\r\n" + b"a" * 9_000_000)

    assert asyncio.run(whole()) == 429


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

    async def whole() -> int:
        ours, theirs = multiprocessing.Pipe()
        signals = aside.Signals(theirs)
        async with serving(handler) as url:
            storm = clients.Storm(2, 0, 1000)
            blowing = asyncio.create_task(clients.blow(signals, url, storm))
            while len(came) < 4:
                await asyncio.sleep(0.01)
            ours.send("stop")
            return await blowing

    assert asyncio.run(whole()) >= 2
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

    async def whole() -> int:
        ours, theirs = multiprocessing.Pipe()
        signals = aside.Signals(theirs)
        made, key = certificate(tmp_path, "IP:127.0.0.1")
        secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        secure.load_cert_chain(made, key)
        async with serving(handler, secure) as url:
            blowing = asyncio.create_task(
                clients.blow(signals, url, clients.Storm(1, 3, 4, b"body"))
            )
            while len(came) < 12:
                await asyncio.sleep(0.01)
            ours.send("stop")
            return await blowing

    assert asyncio.run(whole()) >= 1
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
    assert measured.good_per_s(answers, 2.0, 10.0) == pytest.approx(0.1)
    assert math.isnan(measured.ratio(1, 0))


def test_documents_differ_and_have_their_size() -> None:
    found = measured.documents(["One sentence.", "Ein Satz für alle."])
    # What a server reads of them differs too, whatever follows.
    assert len({text[:16] for text in found}) == measured.DOCUMENTS
    sizes = {len(text.encode()) for text in found}
    assert max(sizes) <= measured.DOCUMENT_BYTES < min(sizes) + 8
