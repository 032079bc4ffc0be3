"""From the bodies of answers to arrays."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from duovec.errors import AnswerError
from duovec.vectors import Dense, Sparse

DENSE_FORM: dict[str, str | bool] = {"encoding_format": "base64"}
SPARSE_FORM: dict[str, str | bool] = {"sparse_format": "indices"}
FLOATS = {"float32": "<f4", "float16": "<f2"}


def items(content: bytes, count: int) -> list[dict[str, Any]]:
    """The entries of an answer to `count` texts, in their order."""
    try:
        data: list[dict[str, Any]] = json.loads(content)["data"]
        places = [item["index"] for item in data]
    except (ValueError, TypeError, KeyError) as error:
        raise AnswerError(f"the answer is not one of a duovec server: {error!r}") from error
    if places != list(range(count)):
        raise AnswerError(f"the answer has {len(places)} entries for {count} texts, or in disorder")
    return data


def dense(data: Sequence[dict[str, Any]]) -> Dense:
    """Vectors as rows, shape (texts, dimensions); (0, 0) without texts."""
    if not data:
        return np.zeros((0, 0), np.float32)
    try:
        bytes_ = b"".join(base64.b64decode(item["embedding"], validate=True) for item in data)
        return np.frombuffer(bytes_, "<f4").astype(np.float32).reshape(len(data), -1)
    except (ValueError, TypeError, KeyError) as error:
        raise AnswerError(f"the answer's vectors cannot be read: {error!r}") from error


def sparse(data: Sequence[dict[str, Any]]) -> list[Sparse]:
    """Weights of each text."""
    try:
        return [_one_sparse(item["sparse_values"]) for item in data]
    except (ValueError, TypeError, KeyError) as error:
        raise AnswerError(f"the answer's weights cannot be read: {error!r}") from error


def _one_sparse(written: dict[str, Any]) -> Sparse:
    indices = np.array(written["indices"], np.int32)
    values = np.array(written["values"], np.float32)
    if indices.shape != values.shape:
        raise ValueError(f"{len(indices)} indices with {len(values)} values")
    return Sparse(indices, values)


def tokens(data: Sequence[dict[str, Any]]) -> list[Dense]:
    """The vectors of each text's tokens, shape (tokens, dimensions)."""
    try:
        return [_of_tokens(item["token_vectors"]) for item in data]
    except (ValueError, TypeError, KeyError) as error:
        raise AnswerError(f"the answer's vectors of tokens cannot be read: {error!r}") from error


def _of_tokens(written: dict[str, Any]) -> Dense:
    bytes_ = base64.b64decode(written["data"], validate=True)
    rows = np.frombuffer(bytes_, FLOATS[written["dtype"]]).astype(np.float32)
    return rows.reshape(written["shape"])
