"""modules.json of sentence-transformers: what a model is made of, in this order."""

import json
import re
from pathlib import Path
from typing import NamedTuple

from default_package.errors import PackageError

NAME = "modules.json"
NETWORKS = ("Transformer", "Router")
"""How kinds of modules end that can only lie in the model's own folder."""


class Module(NamedTuple):
    """One part."""

    type: str
    place: str
    """Its folder in that of the model."""

    @property
    def kind(self) -> str:
        """`sentence_transformers.models.Router.Router` -> `Router`."""
        return self.type.rpartition(".")[2]


def read(folder: Path) -> list[Module]:
    """All modules of a model; none where there is no list."""
    path = folder / NAME
    if not path.exists():
        return []
    try:
        return [Module(e["type"], e["path"]) for e in json.loads(path.read_text("utf-8"))]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PackageError(f"{path} is not a list of modules") from error


def check(path: Path, modules: list[Module], order: str, only: str) -> None:
    """Refuses those of the file `path` unless their kinds are in an order that can be served.

    `order` is the pattern of their names, and `only` says it to a person.
    """
    kinds = [module.kind for module in modules]
    foreign = [m.type for m in modules if not m.type.startswith("sentence_transformers.")]
    if foreign:
        own = "code of the model's own, which is never run: name another model"
        raise PackageError(f"{path} has the type {foreign[0]!r}, {own}")
    if not re.fullmatch(order, " ".join(kinds)):
        raise PackageError(f"{path} has the modules {', '.join(kinds)}: only {only} can be served")
    if modules[0].place and kinds[0].endswith(NETWORKS):
        raise PackageError(f"{path} has its {kinds[0]} in {modules[0].place!r}: only '' is read")
