"""From texts to the bodies of requests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict

InputType = Literal["query", "passage", "document"]

# The largest interactive request, as the server counts; more texts are bulk.
INTERACTIVE_TEXTS = 8
# The longest time that servers grant by default (--max-request-timeout-ms).
BULK_TIMEOUT_S = 300.0
INTERACTIVE_TIMEOUT_S = 30.0
# Sockets know no endless timeout, and headers no endless number.
LONGEST_S = 1e6
# More than the names and values of all fields but the texts.
FIELDS_BYTES = 4096


class Options(TypedDict, total=False):
    """What each call may say.

    `input_type`: which of the model's prompts is put in front of the texts. `truncate`: whether a
    text that is too long is cut or refused; absent is the server's choice. `bulk`: whether the
    call may wait behind others; absent says so for more than 8 texts. `timeout_s`: the time of
    each request of the call with its repeats; absent is 30 s, and 300 s for bulk.
    """

    input_type: InputType | None
    truncate: bool | None
    bulk: bool | None
    timeout_s: float | None


class DenseOptions(Options, total=False):
    """`dimensions`: the length of the vectors, where the model knows shorter ones."""

    dimensions: int | None


class SparseOptions(Options, total=False):
    """`sparse_top_k`: keep so many of the heaviest; `sparse_min_weight`: keep those at least it."""

    sparse_top_k: int | None
    sparse_min_weight: float | None


class PairedOptions(DenseOptions, SparseOptions, total=False):
    """Those of both kinds."""


@dataclass(frozen=True)
class Limits:
    """How large a request may be: those of the server, but fewer texts.

    A server takes up to 2048 texts. A request of that many is repeated as a whole when it fails,
    and may take longer than a server grants.
    """

    texts: int = 256
    body_bytes: int = 32 * 1024 * 1024
    text_bytes: int = 1024 * 1024

    def __post_init__(self) -> None:
        """A request without a text is none."""
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} is {value}; it is a number above 0")


class Part(NamedTuple):
    """One request's texts: those from `first` on, before `end`."""

    first: int
    end: int


def _written(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()


def _checked_size(text: object, index: int, limits: Limits) -> int:
    """Bytes of a text in a body."""
    if not isinstance(text, str):
        raise TypeError(f"texts[{index}] is of type {type(text).__name__}; texts are str")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(
            f"texts[{index}] has half a character at {error.start} (a lone surrogate), which has "
            "no UTF-8; remove it"
        ) from None
    if size > limits.text_bytes:
        raise ValueError(
            f"texts[{index}] has {size} bytes, more than the {limits.text_bytes} that a server "
            "takes; cut it, or set Limits(text_bytes=...) as the server's --max-item-bytes"
        )
    return len(_written(text))


def split(texts: Sequence[str], limits: Limits) -> list[Part]:
    """The requests for `texts`, in order.

    Raises TypeError or ValueError with the place of a text that no server takes, before anything
    is sent.
    """
    if isinstance(texts, str | bytes):
        raise TypeError("texts is one text; give a list of texts")
    parts: list[Part] = []
    first, bytes_so_far = 0, FIELDS_BYTES
    for index, text in enumerate(texts):
        size = _checked_size(text, index, limits) + 1
        full = index - first == limits.texts or bytes_so_far + size > limits.body_bytes
        if full and index > first:
            parts.append(Part(first, index))
            first, bytes_so_far = index, FIELDS_BYTES
        bytes_so_far += size
    if len(texts) > first:
        parts.append(Part(first, len(texts)))
    return parts


def body(texts: Sequence[str], fields: dict[str, Any]) -> bytes:
    """A request's body."""
    written = b",".join(_written(text) for text in texts)
    return b'{"input":[' + written + b"]," + json.dumps(fields).encode()[1:]


def fields(model: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the caller chose."""
    names = ("input_type", "truncate", "dimensions", "sparse_top_k", "sparse_min_weight")
    chosen = {name: options.get(name) for name in names} | {"model": model}
    return {name: value for name, value in chosen.items() if value is not None}


class Urgency(NamedTuple):
    """How a call is treated: its class, and the time of each of its requests."""

    bulk: bool
    timeout_s: float


def urgency(texts: int, options: Mapping[str, Any]) -> Urgency:
    """What the options say, or what fits the number of texts."""
    chosen: bool | None = options.get("bulk")
    bulk = texts > INTERACTIVE_TEXTS if chosen is None else chosen
    timeout_s: float | None = options.get("timeout_s")
    if timeout_s is None:
        timeout_s = BULK_TIMEOUT_S if bulk else INTERACTIVE_TIMEOUT_S
    if not timeout_s > 0:
        raise ValueError(f"timeout_s is {timeout_s}; it is a number of seconds above 0")
    return Urgency(bulk, timeout_s)
