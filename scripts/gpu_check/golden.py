"""Answers against vectors that an independent f32 program computed."""

import array
import base64
import json
import math
from pathlib import Path
from typing import Any

from gpu_check.server import Server, request

#: Half precision against f32.
COSINE_MIN = 0.9995


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
