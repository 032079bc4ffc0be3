"""What a server answers, so that only servers that do the same work are compared."""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Sequence
from typing import Any

import httpx

from default_package.errors import PackageError

from .dialect import Target

LOOKED_AT = 8
"""So many texts are looked at."""
TIMEOUT_S = 120
"""A server may load its model when it is first asked."""
SHOWN_CHARS = 300
SAME_COSINE = 0.99
"""Half precision changes less."""

Vector = Sequence[float]


def ask(target: Target, texts: list[str]) -> list[Vector]:
    """One vector for each text. Raises PackageError when the answer is something else."""
    advice = "is the address right, and --dialect?"
    try:
        answer = httpx.post(target.address, json=target.dialect.body(texts), timeout=TIMEOUT_S)
    except httpx.HTTPError as error:
        raise PackageError(f"{target.address} cannot be asked ({error}): {advice}") from error
    if answer.status_code != 200:
        said = " ".join(answer.text.split())[:SHOWN_CHARS]
        raise PackageError(f"{target.address} answered {answer.status_code}, {said}: {advice}")
    try:
        found = _read(answer.json())
    except (ValueError, TypeError, KeyError) as error:
        raise PackageError(f"{target.address} answered no vectors: {advice}") from error
    if len(found) != len(texts):
        raise PackageError(
            f"{target.address} answered {len(found)} vectors for {len(texts)} texts: {advice}"
        )
    return found


def _read(answer: Any) -> list[Vector]:
    """OpenAI's form, or a plain list of vectors."""
    if isinstance(answer, dict):
        answer = [item["embedding"] for item in answer["data"]]
    return [_vector(written) for written in answer]


def _vector(written: Any) -> Vector:
    if isinstance(written, str):
        return array("f", base64.b64decode(written, validate=True))
    return [float(value) for value in written]


def likeness(own: list[Vector], other: list[Vector]) -> str:
    """Whether both servers seem to run the same model, in words."""
    sizes = len(own[0]), len(other[0])
    if sizes[0] != sizes[1]:
        return f"ANOTHER MODEL: vectors of {sizes[1]} numbers, ours have {sizes[0]}"
    least = min(cosine(one, two) for one, two in zip(own, other, strict=True))
    if least < SAME_COSINE:
        return f"OTHER VECTORS than ours, cosine {least:.3f}: another model, or another prompt"
    return f"the same vectors as ours, cosine at least {least:.4f}"


def cosine(one: Vector, other: Vector) -> float:
    """Of two vectors of any length; 0 when one of them has no direction."""
    product = sum(x * y for x, y in zip(one, other, strict=True))
    lengths = math.hypot(*one) * math.hypot(*other)
    return product / lengths if lengths else 0.0
