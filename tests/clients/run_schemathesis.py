"""The command line of schemathesis, with one hook: `python run_schemathesis.py run URL ...`."""

from __future__ import annotations

from typing import Any

import schemathesis
from schemathesis.cli import schemathesis as command_line
from schemathesis.generation import GenerationMode

TIMEOUT = "x-request-timeout-ms"
ENOUGH_MS = 60_000

# Fields that mean the same, of which the first one counts.
NAMES = [
    ("input_type", "task", "task_type", "prompt_name"),
    ("dimensions", "output_dimension", "truncate_dim"),
    (
        "output_type",
        "output_dtype",
        "embedding_type",
        "embedding_types",
        "embed_dtype",
        "encoding_format",
    ),
    ("truncate", "truncation"),
    ("top_n", "top_k"),
]


def whole(value: Any) -> Any:
    """Write 2.0 as 2: JSON Schema takes both for integers, and the server's messages ask for 2."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    return value


def of_the_model(body: Any) -> Any:
    """Say that token ids are the model's: no schema can say which ids OpenAI's encodings lack."""
    if isinstance(body, dict) and body.get("token_encoding") in ("cl100k_base", "o200k_base"):
        return {**body, "token_encoding": "model"}
    return body


def said_once(body: Any) -> Any:
    """Leave out what other names of a field say: no schema can say that they agree."""
    if not isinstance(body, dict):
        return body
    later = [name for names in NAMES for name in [n for n in names if body.get(n) is not None][1:]]
    return {name: value for name, value in body.items() if name not in later}


def cut_as_possible(body: Any) -> Any:
    """Cut texts by tokens: no schema can say that spans lie in a text, or that input is texts."""
    if not isinstance(body, dict):
        return body
    rest = {name: value for name, value in body.items() if "chunking" not in name}
    items = body.get("input")
    are_texts = isinstance(items, str) or (
        isinstance(items, list) and all(isinstance(item, str) for item in items)
    )
    asked = body.get("chunking")
    if not are_texts or not isinstance(asked, dict):
        return rest
    return {**rest, "chunking": {"by": "tokens", "size": 64, "late": asked.get("late")}}


def of_a_run(body: Any) -> Any:
    """Leave the table of words out: no schema can say that it is for queries on one route."""
    if isinstance(body, dict) and body.get("lexical") == "table":
        return {name: value for name, value in body.items() if name != "lexical"}
    return body


def give_time(headers: Any) -> None:
    """Give every request enough time: no schema can say how long the model needs."""
    asked = str((headers or {}).get(TIMEOUT, ""))
    if asked.isascii() and asked.isdecimal() and 0 < int(asked) < ENOUGH_MS:
        headers[TIMEOUT] = str(ENOUGH_MS)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Change every request before it is sent."""
    case.body = of_the_model(whole(case.body))
    if case.meta is None or case.meta.generation.mode is GenerationMode.POSITIVE:
        case.body = of_a_run(cut_as_possible(said_once(case.body)))
    give_time(case.headers)


if __name__ == "__main__":
    command_line()
