"""A load of clients that each wait for their answer, from as many processes."""

import json
import multiprocessing
import time
from dataclasses import dataclass
from pathlib import Path

from gpu_check.server import Server, request

#: Said by people or written for this purpose; several scripts, short and long.
FALLBACK_TEXTS = ["hello world", "ein kurzer Satz", "короткий текст", "短い文", "a b c d e f g h"]


@dataclass(frozen=True)
class Shape:
    """Clients at once, and texts of each request."""

    clients: int
    texts: int


SHAPES = [Shape(1, 1), Shape(16, 1), Shape(64, 1), Shape(4, 32)]


@dataclass
class Outcome:
    """What one shape gave."""

    shape: Shape
    requests: int
    errors: int
    texts_per_s: float
    p50_ms: float
    p99_ms: float


def texts_of(golden: Path) -> list[str]:
    """Texts in many languages."""
    if golden.exists():
        return [item["text"] for item in json.loads(golden.read_text())["items"] if item["text"]]
    return FALLBACK_TEXTS


def client(address: str, texts: list[str], number: int, shape: Shape, seconds: float) -> list:
    """One client's latencies in seconds; an error counts as -1."""
    server = Server.__new__(Server)
    server.address = address
    connection = server.connect()
    latencies = []
    turn = number
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        chosen = [texts[(turn + at) % len(texts)] for at in range(shape.texts)]
        turn += shape.texts
        body = json.dumps({"input": chosen, "encoding_format": "base64"}).encode()
        start = time.monotonic()
        status, answer = request(connection, "POST", "/v1/embeddings", body)
        whole = status == 200 and len(answer["data"]) == shape.texts
        latencies.append(time.monotonic() - start if whole else -1)
    return latencies


def run(server: Server, texts: list[str], shape: Shape, seconds: float) -> Outcome:
    """Runs one shape."""
    start = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(shape.clients) as pool:
        # Processes start before the clock does.
        pool.map(abs, range(shape.clients))
        start = time.monotonic()
        work = [(server.address, texts, number, shape, seconds) for number in range(shape.clients)]
        latencies = [one for client_ in pool.starmap(client, work, 1) for one in client_]
    took = time.monotonic() - start
    good = sorted(one for one in latencies if one >= 0)
    at = (lambda part: good[min(int(len(good) * part), len(good) - 1)] * 1e3) if good else None
    return Outcome(
        shape,
        len(latencies),
        len(latencies) - len(good),
        len(good) * shape.texts / took,
        at(0.5) if at else 0.0,
        at(0.99) if at else 0.0,
    )
