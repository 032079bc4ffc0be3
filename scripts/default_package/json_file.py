"""Reads JSON that others wrote."""

import json
from pathlib import Path
from typing import Any

from .errors import PackageError


def read_json(path: Path, owner: str = "model") -> dict[str, Any]:
    """The JSON object of a file that every folder of an `owner` has."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PackageError(f"{path} is missing: name the folder of a {owner}") from error
    except ValueError as error:
        raise PackageError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise PackageError(f"{path} is not a JSON object")
    return content
