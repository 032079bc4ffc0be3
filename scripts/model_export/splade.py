"""SPLADE models: what their modules say of the weights of words, and the head that makes them.

Files, keys and defaults are those of sentence-transformers 6.1; models whose queries need no run
have a Router there.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from default_package.errors import JsonFile, PackageError, read_json
from default_package.vocabulary import Vocabulary

from . import modules, stored
from .modules import Module

KEPT = 512
"""Words of a text: trained models give fewer than this many a weight, but for the longest texts."""
POOLING, STATIC, ROUTER = "SpladePooling", "SparseStaticEmbedding", "Router"
LOGARITHMS = {"relu": 1, "log1p_relu": 2}
"""The activation's name there -> logarithms behind the largest logit."""
ROUTES = "router_config.json"
TABLE = "idf.json"
"""Token -> its weight in a question, in models of opensearch-project."""
STRATEGY, ACTIVATION = "pooling_strategy", "activation_function"
KEYS = {STRATEGY, ACTIVATION, "embedding_dimension", "word_embedding_dimension", "chunk_size"}
"""Of the pooling's file."""


@dataclass(frozen=True)
class Splade:
    """How a model makes weights of words."""

    logarithms: int
    questions: Path | None
    """The file with what a word weighs in a question, where only documents run."""


def is_named(parts: list[Module]) -> bool:
    """Whether these are the modules of a model without dense vectors."""
    return bool({part.kind for part in parts} & {POOLING, ROUTER})


def read(folder: Path, parts: list[Module]) -> tuple[Splade, str]:
    """And the file that says so; without modules a model is as the first ones were."""
    if not is_named(parts):
        table = folder / TABLE
        return Splade(LOGARITHMS["relu"], table if table.exists() else None), "--pooling"
    path, questions = folder / modules.NAME, None
    if parts[0].kind == ROUTER:
        modules.check(path, parts, ROUTER, ROUTER)
        path, routes = folder / ROUTES, _routes(folder / parts[0].place)
        modules.check(path, routes["query"], STATIC, STATIC)
        questions, parts = _table(folder, folder / routes["query"][0].place), routes["document"]
    told = f"Transformer or MLMTransformer and {POOLING}"
    modules.check(path, parts, f"(MLM)?Transformer {POOLING}", told)
    about = JsonFile(folder / parts[1].place / "config.json")
    about.demand_known(KEYS.__contains__)
    about.demand(about.get(STRATEGY, "max") == "max", STRATEGY, "only 'max' can be served")
    activation, only = about.get(ACTIVATION, "relu"), " or ".join(LOGARITHMS)
    about.demand(activation in LOGARITHMS, ACTIVATION, f"only {only} can be served")
    source = f"{about.path.relative_to(folder)}, {ACTIVATION}"
    return Splade(LOGARITHMS[activation], questions), source


def _routes(folder: Path) -> dict[str, list[Module]]:
    """The modules for `query` and for `document`."""
    about = read_json(folder / ROUTES)
    try:
        types, routes = about["types"], about["structure"]
        names = ("query", "document")
        return {name: [Module(types[place], place) for place in routes[name]] for name in names}
    except (KeyError, TypeError) as error:
        only = "routes for query and document, and the type of each module, are needed"
        raise PackageError(f"{folder / ROUTES} lacks {error}: {only}") from error


def _table(folder: Path, module: Path) -> Path:
    """The file of the weights in questions."""
    if found := stored.file_of(module):
        return found
    for path in (module / TABLE, folder / TABLE):
        if path.exists():
            return path
    first = module / stored.FILES[0]
    raise PackageError(f"{first} is missing, and {TABLE} too: questions have no weights")


def question_weights(path: Path, words: Vocabulary) -> np.ndarray:
    """f32 `[vocabulary]`; special tokens weigh nothing, as in documents."""
    found = np.zeros(words.size, np.float32)
    for token_id, weight in _stored_weights(path, words).items():
        if not math.isfinite(weight) or token_id >= words.size:
            raise PackageError(f"{path} has the weight {weight} for the token {token_id}")
        found[token_id] = weight
    found[special_tokens(words)] = 0.0
    return found


def special_tokens(words: Vocabulary) -> list[int]:
    """Ids that stand for no word."""
    added = words.tokenizer.get_added_tokens_decoder().items()
    return sorted({*words.special_ids, *(token for token, about in added if about.special)})


def _stored_weights(path: Path, words: Vocabulary) -> dict[int, float]:
    if path.suffix != ".json":
        numbers = stored.read(path)
        if "weight" not in numbers or len(numbers["weight"].shape) != 1:
            raise PackageError(f"{path} lacks the tensor weight, with a number for each token")
        return dict(enumerate(numbers["weight"].read().tolist()))
    ids: dict[str, int] = words.tokenizer.get_vocab(with_added_tokens=True)
    weights: dict[str, Any] = read_json(path)
    is_table = weights and all(isinstance(weight, int | float) for weight in weights.values())
    if not is_table or not ids.keys() & weights.keys():
        raise PackageError(f"{path} is no table of tokens of tokenizer.json and their weights")
    return {ids[token]: float(weight) for token, weight in weights.items() if token in ids}
