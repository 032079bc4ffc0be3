"""The one error these scripts show to a person, and the JSON of others, where most of them are."""

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

KINDS = {bool: "true or false", dict: "an object", list: "a list", str: "a text"}


class PackageError(Exception):
    """Something the caller can act on; its text is one sentence, shown without a traceback."""


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


class JsonFile(dict[str, Any]):
    """What a file of a model says, which is nothing where the file may be missing. Every key that
    is asked for counts as understood. A value may be of any kind: it is looked up in a list, since
    a set or a table cannot be asked for a list or an object."""

    def __init__(self, path: Path, *, may_be_missing: bool = False) -> None:
        super().__init__({} if may_be_missing and not path.exists() else read_json(path))
        self.path = path
        self.known: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.known.add(key)
        return super().get(key, default)

    def of_kind(self, key: str, default: Any) -> Any:
        """What the key says, of the default's kind; the default where nothing is said."""
        kind, found = type(default), self.get(key, default)
        is_empty = not found and kind is not bool
        self.demand(is_empty or isinstance(found, kind), key, f"{KINDS[kind]} is needed")
        return default if is_empty else found

    def demand(self, holds: bool, key: str, wanted: str, *value: object) -> None:
        """Refuses the file with the key, its value, or the one that is given, and what to do."""
        if not holds:
            [found] = value or [self.get(key)]
            raise PackageError(f"{self.path} has {key} {found!r}: {wanted}")

    def demand_known(self, harmless: str) -> None:
        """Refuses a key that nobody understands, and that may change what a model gives, unless one
        of these patterns fits it."""
        patterns = harmless.split()
        cure = "if it changes nothing, name a copy of the model without it"
        for key in self:
            is_known = key in self.known or any(fnmatch(key, one) for one in patterns)
            self.demand(is_known, key, f"nobody here understands it: {cure}")
