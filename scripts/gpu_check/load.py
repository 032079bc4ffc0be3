"""What a server is asked: texts of known vectors, and closed loops of several shapes.

wrk sends the loops: a program in Python would be what is measured.
"""

import array
import base64
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from default_package.errors import PackageError
from gpu_check.programs import Server
from gpu_check.report import Report, SkipSection
from load.wrk import Wrk, together

#: Different requests of a run.
BODIES = 256
#: Half precision against f32 of an independent program.
COSINE_MIN = 0.9995


#: Clients at once, and texts of each request.
SHAPES = [(1, 1), (16, 1), (64, 1), (4, 32)]


def find_wrk() -> Wrk:
    """The installed one, or Debian's; without it there is no load."""
    try:
        return Wrk.found()
    except PackageError as error:
        raise SkipSection(f"no load: {error}") from error


def texts_of(golden: Path) -> list[str]:
    """Texts in many languages."""
    return [item["text"] for item in json.loads(golden.read_text())["items"] if item["text"]]


def bodies(texts: list[str], each: int) -> str:
    """Requests of so many texts, one a line, each with other ones."""
    lines = []
    for number in range(BODIES):
        chosen = [texts[(number * each + at) % len(texts)] for at in range(each)]
        lines.append(json.dumps({"input": chosen, "encoding_format": "base64"}))
    return "\n".join(lines) + "\n"


def run_all(report: Report, server: Server, texts: list[str], seconds: float) -> None:
    """Runs the shapes, all of them within about `seconds`, and adds a table and a check.

    wrk runs for whole seconds, so a short time is for the first shapes alone.
    """
    wrk, shapes = find_wrk(), SHAPES[: max(1, int(seconds))]
    found, rows = [], []
    with tempfile.TemporaryDirectory() as folder:
        for clients, each in shapes:
            path = Path(folder, f"{each}.jsonl")
            path.write_text(bodies(texts, each))
            one = wrk.run(f"{server.url}/v1/embeddings", clients, seconds / len(shapes), path)
            found.append(one)
            rate = f"{one.requests * each / one.seconds:,.0f}"
            spread = [f"{one.spread[name]:.2f}" for name in ("p50", "p90", "p99", "max")]
            rows.append([f"{clients} x {each}", str(one.requests), rate, *spread])
    head = ["clients x texts", "requests", "texts/s", "p50 ms", "p90 ms", "p99 ms", "max ms"]
    report.table(head, rows)
    whole = together(found)
    errors = whole.refused + whole.broken
    report.check(
        errors == 0 and whole.requests > 0,
        f"{whole.requests} requests in {whole.seconds:.0f} s, {errors} errors",
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
    lowest, largest = 1.0, 0.0
    form = {"encoding_format": "base64", "sparse_format": "dict"}
    for item in items:
        asked = {"input": item["text"], "input_type": item["input_type"]}
        [seen] = server.items("/v1/embeddings:both", **asked, **form)
        lowest = min(lowest, cosine(floats(seen["embedding"]), floats(item["dense"])))
        largest = max(largest, weight_difference(seen["sparse_values"], item["sparse"]))
    return lowest, largest, len(items)
