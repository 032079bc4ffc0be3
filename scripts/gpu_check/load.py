"""What a server is asked: texts of known vectors, and closed loops of several shapes.

wrk sends the loops: a program in Python would be what is measured.
"""

import array
import base64
import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from default_package.errors import PackageError
from gpu_check.report import Report, SkipSection
from gpu_check.server import Server, request
from load.wrk import Found, Wrk

#: Different requests of a run.
BODIES = 256
#: Half precision against f32 of an independent program.
COSINE_MIN = 0.9995


@dataclass(frozen=True)
class Shape:
    """Clients at once, and texts of each request."""

    clients: int
    texts: int


SHAPES = [Shape(1, 1), Shape(16, 1), Shape(64, 1), Shape(4, 32)]


def find_wrk() -> Wrk:
    """The installed one, or Debian's; without it there is no load."""
    try:
        return Wrk.found()
    except PackageError as error:
        raise SkipSection(f"no load: {error}") from error


def texts_of(golden: Path) -> list[str]:
    """Texts in many languages."""
    return [item["text"] for item in json.loads(golden.read_text())["items"] if item["text"]]


def bodies(texts: list[str], shape: Shape) -> str:
    """Requests, one a line, each with other texts."""
    lines = []
    for number in range(BODIES):
        first = number * shape.texts
        chosen = [texts[(first + at) % len(texts)] for at in range(shape.texts)]
        lines.append(json.dumps({"input": chosen, "encoding_format": "base64"}))
    return "\n".join(lines) + "\n"


def run(wrk: Wrk, server: Server, texts: list[str], shape: Shape, seconds: float) -> Found:
    """Runs one shape."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(bodies(texts, shape))
        file.flush()
        return wrk.run(f"{server.url}/v1/embeddings", shape.clients, seconds, Path(file.name))


def run_all(report: Report, server: Server, texts: list[str], seconds: float) -> None:
    """Runs the shapes, all of them within about `seconds`, and adds a table and a check.

    wrk runs for whole seconds, so a short time is for the first shapes alone.
    """
    wrk, shapes = find_wrk(), SHAPES[: max(1, int(seconds))]
    found = [(shape, run(wrk, server, texts, shape, seconds / len(shapes))) for shape in shapes]
    rows = []
    for shape, one in found:
        spread = one.spread
        rows.append(
            [
                f"{shape.clients} x {shape.texts}",
                str(one.requests),
                f"{one.requests * shape.texts / one.seconds:,.0f}",
                *(f"{spread[name]:.2f}" for name in ("p50", "p90", "p99", "max")),
            ]
        )
    head = ["clients x texts", "requests", "texts/s", "p50 ms", "p90 ms", "p99 ms", "max ms"]
    report.table(head, rows)
    requests = sum(one.requests for _, one in found)
    errors = sum(one.refused + one.broken for _, one in found)
    took = sum(one.seconds for _, one in found)
    report.check(
        errors == 0 and requests > 0, f"{requests} requests in {took:.0f} s, {errors} errors"
    )


def cosine(a: list[float], b: list[float]) -> float:
    """Of two vectors of any length."""
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def floats(text: str) -> list[float]:
    """Little-endian f32 in base64."""
    return list(array.array("f", base64.b64decode(text)))


def weight_difference(seen: dict[str, float], golden: list[Any]) -> float:
    """The largest difference of a lexical weight; a missing one counts as zero."""
    expected = dict(zip(map(str, golden[0]), golden[1], strict=True))
    ids = expected.keys() | seen.keys()
    return max((abs(expected.get(one, 0.0) - seen.get(one, 0.0)) for one in ids), default=0.0)


def compare(server: Server, golden: Path) -> tuple[float, float, int]:
    """Lowest cosine and largest difference of a weight over all items, and how many there are."""
    items = json.loads(golden.read_text())["items"]
    connection = server.connect()
    lowest, largest = 1.0, 0.0
    for item in items:
        body = {
            "input": item["text"],
            "input_type": item["input_type"],
            "encoding_format": "base64",
            "sparse_format": "dict",
        }
        status, answer = request(
            connection, "POST", "/v1/embeddings:both", json.dumps(body).encode()
        )
        if status != 200:
            raise RuntimeError(f"status {status}: {answer}")
        seen = answer["data"][0]
        lowest = min(lowest, cosine(floats(seen["embedding"]), floats(item["dense"])))
        largest = max(largest, weight_difference(seen["sparse_values"], item["sparse"]))
    return lowest, largest, len(items)
