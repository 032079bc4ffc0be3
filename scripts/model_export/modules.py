"""What published models have around their network: the modules of sentence-transformers behind it,
the head of a cross-encoder, and what SPLADE models say of the weights of words.

Files, keys and defaults are those of sentence-transformers 6.1; models whose queries need no run
have a Router there.
"""

import json
import math
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from default_package.encoder import Dense, Words
from default_package.errors import JsonFile, PackageError, read_json
from default_package.vocabulary import Vocabulary

from . import stored
from .stored import Stored

NAME = "modules.json"
NETWORKS = ("Transformer", "Router")
"""How kinds of modules end that can only lie in the model's own folder."""
ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": None,
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.GELU": "gelu",
}
"""Their names in `encoder.Dense`."""
ONE = "sentence_embedding"
STEADY = 4.0  # the number beside a score; `crates/model/src/package/manifest/kind.rs` knows it
KEPT = 512
"""Words of a text: trained models give fewer than this many a weight, but for the longest texts."""
POOLING, STATIC, ROUTER = "SpladePooling", "SparseStaticEmbedding", "Router"
LOGARITHMS = {"relu": 1, "log1p_relu": 2}
"""The activation's name there -> logarithms behind the largest logit."""
ROUTES = "router_config.json"
TABLE = "idf.json"  # token -> its weight in a question, in models of opensearch-project
STRATEGY, ACTIVATION = "pooling_strategy", "activation_function"


class Module(NamedTuple):
    """One part."""

    type: str
    place: str  # its folder in that of the model

    @property
    def kind(self) -> str:
        """`sentence_transformers.models.Router.Router` -> `Router`."""
        return self.type.rpartition(".")[2]


def read(folder: Path) -> list[Module]:
    """All modules of a model, in their order; none where there is no list."""
    path = folder / NAME
    if not path.exists():
        return []
    try:
        return [Module(e["type"], e["path"]) for e in json.loads(path.read_text("utf-8"))]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PackageError(f"{path} is not a list of modules") from error


def check(path: Path, modules: list[Module], order: str, only: str) -> None:
    """Refuses those of the file `path` unless their kinds are in an order that can be served.
    `order` is the pattern of their names, and `only` says it to a person."""
    kinds = [module.kind for module in modules]
    foreign = [m.type for m in modules if not m.type.startswith("sentence_transformers.")]
    if foreign:
        own = "code of the model's own, which is never run: name another model"
        raise PackageError(f"{path} has the type {foreign[0]!r}, {own}")
    if not re.fullmatch(order, " ".join(kinds)):
        raise PackageError(f"{path} has the modules {', '.join(kinds)}: only {only} can be served")
    if modules[0].place and kinds[0].endswith(NETWORKS):
        raise PackageError(f"{path} has its {kinds[0]} in {modules[0].place!r}: only '' is read")


def dense(folder: Path, width: int) -> tuple[tuple[Dense, ...], dict[str, Stored]]:
    """What is behind pooled hidden states of `width` numbers, and tensors by our names. Nothing is
    between modules without an activation: they become one product."""
    found: list[tuple[np.ndarray, np.ndarray, str | None]] = []
    for module in (module for module in read(folder) if module.kind == "Dense"):
        weight, bias, activation = _dense(folder / module.place)
        before = len(found[-1][0]) if found else width
        if (taken := weight.shape[1]) != before:
            numbers = f"{taken} numbers, not {before}"
            raise PackageError(f"{folder / NAME} has a Dense module for {numbers}")
        if found and not found[-1][2]:
            earlier, earlier_bias, _ = found.pop()
            weight, bias = weight @ earlier, weight @ earlier_bias + bias
        found.append((weight, bias, activation))
    shapes, tensors = [], {}
    for number, (weight, bias, activation) in enumerate(found):
        shapes.append(Dense(len(weight), biased := bool(bias.any()), activation))
        for name, value in (("w", weight), ("b", bias))[: 1 + biased]:
            tensors[f"dense{number}.{name}"] = Stored(value.shape, "F32", value.__getitem__)
    return tuple(shapes), tensors


def _dense(module: Path) -> tuple[np.ndarray, np.ndarray, str | None]:
    """f64 weight `[out, in]` and bias `[out]`, and the activation behind them."""
    about = JsonFile(module / "config.json")
    for key in ("module_input_name", "module_output_name"):
        about.demand(about.get(key, ONE) == ONE, key, f"only {ONE!r} can be exported")
    activation, known = about.get(ACTIVATION), " or ".join(ACTIVATIONS)
    about.demand(activation in [*ACTIVATIONS], ACTIVATION, f"only {known} can be exported")
    file = stored.file_of(module)
    if file is None:
        raise PackageError(f"{module / stored.FILES[0]} is missing, the weights of this module")
    tensors, numbers = stored.read(file), []
    for name in ("linear.weight", "linear.bias")[: 1 + about.of_kind("bias", True)]:
        if name not in tensors:
            raise PackageError(f"{file} lacks the tensor {name}")
        numbers.append(tensors[name].read().astype(np.float64))
    weight, *biases = numbers
    return weight, biases[0] if biases else np.zeros(len(weight)), ACTIVATIONS[activation]


def beside_steady(score: Stored, name: str) -> Stored:
    """The published weight or bias of a score, with what makes the other number. That is always the
    same, so that the length 1, which every vector gets, leaves the score as their quotient."""
    steady = np.full(score.shape, STEADY if name.endswith(".b") else 0.0, np.float32)
    both = (2, *score.shape[1:])
    return Stored(both, "F32", lambda rows: np.concatenate([score.read(), steady])[rows])


def makes_words(parts: list[Module]) -> bool:
    """Whether these are the modules of a model without dense vectors."""
    return bool({part.kind for part in parts} & {POOLING, ROUTER})


def splade(folder: Path, parts: list[Module], *, is_tied: bool) -> tuple[Words, Path | None, str]:
    """How a SPLADE model weighs words, the file with what each weighs in a question, where only
    documents run, and what says so. Without modules a model is as the first ones were."""
    path, questions = folder / NAME, None
    if not makes_words(parts):
        table, words = folder / TABLE, Words(KEPT, LOGARITHMS["relu"], is_tied)
        return words, table if table.exists() else None, "--pooling"
    if parts[0].kind == ROUTER:
        check(path, parts, ROUTER, ROUTER)
        path = folder / parts[0].place / ROUTES
        about = read_json(path)
        try:
            types, routes = about["types"], about["structure"]
            ways = (routes[name] for name in ("query", "document"))
            query, parts = ([Module(types[place], place) for place in way] for way in ways)
        except (KeyError, TypeError) as error:
            only = "routes for query and document, and the type of each module, are needed"
            raise PackageError(f"{path} lacks {error}: {only}") from error
        check(path, query, STATIC, STATIC)
        place = folder / query[0].place
        places = (stored.file_of(place), place / TABLE, folder / TABLE)
        questions = next((file for file in places if file and file.exists()), None)
        if questions is None:
            first = place / stored.FILES[0]
            why = f"is missing, and {TABLE} too: questions have no weights"
            raise PackageError(f"{first} {why}")
    told = f"Transformer or MLMTransformer and {POOLING}"
    check(path, parts, f"(MLM)?Transformer {POOLING}", told)
    about = JsonFile(folder / parts[1].place / "config.json")
    about.demand(about.get(STRATEGY, "max") == "max", STRATEGY, "only 'max' can be served")
    activation, only = about.get(ACTIVATION, "relu"), " or ".join(LOGARITHMS)
    about.demand(activation in [*LOGARITHMS], ACTIVATION, f"only {only} can be served")
    about.demand_known("embedding_dimension word_embedding_dimension chunk_size")
    source = f"{about.path.relative_to(folder)}, {ACTIVATION}"
    return Words(KEPT, LOGARITHMS[activation], is_tied), questions, source


def question_weights(path: Path, words: Vocabulary) -> np.ndarray:
    """f32 `[vocabulary]`; special tokens weigh nothing, as in documents."""
    if path.suffix == ".json":
        ids, table = words.tokenizer.get_vocab(with_added_tokens=True), read_json(path)
        is_table = table and all(isinstance(weight, int | float) for weight in table.values())
        if not is_table or not ids.keys() & table.keys():
            raise PackageError(f"{path} is no table of tokens of tokenizer.json and their weights")
        weights = {ids[token]: float(weight) for token, weight in table.items() if token in ids}
    else:
        numbers = stored.read(path)
        if "weight" not in numbers or len(numbers["weight"].shape) != 1:
            raise PackageError(f"{path} lacks the tensor weight, with a number for each token")
        weights = dict(enumerate(numbers["weight"].read().tolist()))
    found = np.zeros(words.size, np.float32)
    for token_id, weight in weights.items():
        if not math.isfinite(weight) or token_id >= words.size:
            raise PackageError(f"{path} has the weight {weight} for the token {token_id}")
        found[token_id] = weight
    found[words.wordless_ids] = 0.0
    return found
