"""SPLADE models: what their modules say of the weights of words, and the head that makes them.

Files, keys and defaults are those of sentence-transformers 6.1; models whose queries need no run
have a Router there.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from default_package.errors import JsonFile, PackageError, read_json
from default_package.vocabulary import Vocabulary
from families.family import WordHead

from . import stored
from .stored import Stored

KEPT = 512
"""Words of a text: trained models give fewer than this many a weight, but for the longest texts."""
TRANSFORMERS = ("Transformer", "MLMTransformer")
POOLING, STATIC, ROUTER = "SpladePooling", "SparseStaticEmbedding", "Router"
LOGARITHMS = {"relu": 1, "log1p_relu": 2}
"""The activation's name there -> logarithms behind the largest logit."""
ROUTES = "router_config.json"
TABLE = "idf.json"
"""Token -> its weight in a question, in models of opensearch-project."""
Modules = list[tuple[str, str]]
"""Type and folder of each."""


@dataclass(frozen=True)
class Splade:
    """How a model makes weights of words."""

    logarithms: int
    questions: Path | None
    """The file with what a word weighs in a question, where only documents run."""


def is_named(modules: Modules) -> bool:
    """Whether these are the modules of a model without dense vectors."""
    return bool({kind_of(module) for module, _ in modules} & {POOLING, ROUTER})


def kind_of(module: str) -> str:
    """`sentence_transformers.models.Router.Router` -> `Router`."""
    return module.rpartition(".")[2]


def read(folder: Path, modules: Modules) -> tuple[Splade, str]:
    """And the file that says so; without modules a model is as the first ones were."""
    if not is_named(modules):
        table = folder / TABLE
        return Splade(LOGARITHMS["relu"], table if table.exists() else None), "--pooling"
    path, questions = folder / "modules.json", None
    if kind_of(modules[0][0]) == ROUTER:
        _check(path, modules, [(ROUTER,)])
        path, routes = folder / ROUTES, _routes(folder / modules[0][1])
        _check(path, routes["query"], [(STATIC,)])
        questions, modules = _table(folder, folder / routes["query"][0][1]), routes["document"]
    _check(path, modules, [TRANSFORMERS, (POOLING,)])
    about = JsonFile(folder / modules[1][1] / "config.json")
    known = {"embedding_dimension", "word_embedding_dimension", "chunk_size"}
    for key in about.keys() - known - {"pooling_strategy", "activation_function"}:
        about.demand(False, key, "nobody here understands it, and it may change the weights")
    key = "pooling_strategy"
    about.demand(about.get(key, "max") == "max", key, "only 'max' can be served")
    key = "activation_function"
    activation = about.get(key, "relu")
    about.demand(activation in LOGARITHMS, key, f"only {' or '.join(LOGARITHMS)} can be served")
    return Splade(LOGARITHMS[activation], questions), f"{about.path.relative_to(folder)}, {key}"


def _check(path: Path, modules: Modules, wanted: list[tuple[str, ...]]) -> None:
    """The modules are of these kinds, each of one of them, and the network is in the root."""
    kinds = [kind_of(module) for module, _ in modules]
    named = " and ".join(" or ".join(kinds) for kinds in wanted)
    why = f"the modules {', '.join(kinds)}: only {named} can be served here"
    if foreign := [m for m, _ in modules if not m.startswith("sentence_transformers.")]:
        why = f"the type {foreign[0]!r}, code of the model's own, which is never run"
    elif len(kinds) == len(wanted) and all(map(tuple.__contains__, wanted, kinds)):
        if kinds[0] not in (*TRANSFORMERS, ROUTER) or not modules[0][1]:
            return
        why = f"its {kinds[0]} in {modules[0][1]!r}: only '' is read"
    raise PackageError(f"{path} has {why}")


def _routes(folder: Path) -> dict[str, Modules]:
    """The modules for `query` and for `document`."""
    about = read_json(folder / ROUTES)
    try:
        types, routes = about["types"], about["structure"]
        found = {name: [(types[place], place) for place in routes[name]] for name in routes}
        return {name: found[name] for name in ("query", "document")}
    except (KeyError, TypeError) as error:
        only = "routes for query and document, and the type of each module, are needed"
        raise PackageError(f"{folder / ROUTES} lacks {error}: {only}") from error


def _table(folder: Path, module: Path) -> Path:
    """The file of the weights in questions."""
    places = [*(module / name for name in stored.FILES), module / TABLE, folder / TABLE]
    found = next((path for path in places if path.exists()), None)
    if found is None:
        raise PackageError(f"{places[0]} is missing, and {TABLE} too: questions have no weights")
    return found


def tensors(
    head: WordHead,
    take: Callable[[str, tuple[int, ...]], Stored],
    names: Collection[str],
    sizes: tuple[int, int],
    *,
    is_tied: bool,
) -> dict[str, Stored]:
    """The head's by our names; `take` finds a published one by the end of its name.

    `names` are all that there are, and `sizes` those of vocabulary and hidden states.
    """
    words, hidden = sizes
    bias = f"{head.bias}.bias"
    if not any(f".{name}".endswith(f".{bias}") for name in names):
        bias = f"{head.outer}.bias"
    found = {
        "mlm.w": take(f"{head.inner}.weight", (hidden, hidden)),
        "mlm.b": take(f"{head.inner}.bias", (hidden,)),
        "mlm.ln.w": take(f"{head.norm}.weight", (hidden,)),
        "mlm.ln.b": take(f"{head.norm}.bias", (hidden,)),
        "words.b": take(bias, (words,)),
    }
    if not is_tied:
        found["words.w"] = take(f"{head.outer}.weight", (words, hidden))
    return found


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
