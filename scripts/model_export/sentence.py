"""What sentence-transformers reads beside the network: modules, pooling, length and prompts.

Each key that changes vectors is honoured, or refused with its file and its name. Files, keys and
defaults are those of sentence-transformers 6.1.
"""

from dataclasses import dataclass
from pathlib import Path

from default_package.choices import CROSS_ENCODER, SPARSE, Pooling
from default_package.encoder import Words
from default_package.errors import JsonFile, PackageError, read_json
from families import Scorer

from . import modules
from .configuration import Configuration
from .modules import Module

SCALED = "mean_sqrt_len_tokens"
"""The mean times a number, which a Dense module sees, and which the length 1 takes away."""
POOLINGS = {"cls": Pooling.CLS, "cls_token": Pooling.CLS, "lasttoken": Pooling.LAST}
POOLINGS |= dict.fromkeys(("mean", "mean_tokens", SCALED), Pooling.MEAN)
MODE = "pooling_mode"
ENCODERS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
"""The file of the Transformer module is named after one, in this order."""
VECTORS, WORDS = "a model of one dense vector a text", "a model of lexical weights"
PAIRS, TOKENS = "a cross-encoder", "token_embeddings"
MODELS = {
    "SentenceTransformer": (None, VECTORS, "feature-extraction", "last_hidden_state", TOKENS),
    "CrossEncoder": (CROSS_ENCODER, PAIRS, "sequence-classification", "logits", "scores"),
    "SparseEncoder": (SPARSE, WORDS, "fill-mask", "logits", TOKENS),
}
"""Kind of model -> the manifest's word, what it is, its task, what gives the network's output, and
the name of that: the only ones that can be served. MLMTransformer, the older module of SPLADE
models, says none of it."""
ORDER = "Transformer Pooling( Dense)*( Normalize)?"
ORDER_TOLD = "Transformer, Pooling, Dense and Normalize, in this order,"
"""Of modules that make vectors."""
MODEL = "config_sentence_transformers.json"
HARMLESS_ARGUMENTS = {"add_pooling_layer", "attn_implementation", "torch_dtype", "dtype"}
"""They choose a kernel, a precision, or a layer whose output is not used."""
PASSAGES = ("document", "passage", "corpus")
"""Prompts of texts that are searched, the first that is there."""
TOKENS_MIN = 3
NETWORK = "config.json"
"""Where no file says less, a text has as many tokens as the network has positions."""


@dataclass(frozen=True)
class Sentence:
    """How a model makes one vector of a text."""

    pooling: Pooling
    tokens_max: int | None  # of a text, where a file says fewer than the network has positions
    prompts: dict[str, str]
    default_prompt: str | None
    sources: dict[str, str]
    """Field of the manifest -> the file and its key that the field comes from."""
    network: Configuration  # what config.json says
    kind: str | None  # the manifest's word, where the model is none of vectors
    what: str  # the model is in a sentence
    scorer: Scorer | None = None  # what makes a score of the vector; cross-encoders alone have one
    words: Words | None = None  # of models that have no vector
    questions: Path | None = None  # with what each word weighs in one, where only documents run
    sparse: bool = True  # whether a lexical head is taken in
    tokens: bool = False  # whether a head for token vectors is


def read(folder: Path, pooling: Pooling | None = None) -> Sentence:
    """That of the model in `folder`; `pooling` wins over what its files say."""
    network, parts = Configuration(folder / NETWORK), modules.read(folder)
    path, sources, scorer, words, questions = folder / modules.NAME, {}, None, None, None
    # A classifier without modules that make vectors.
    if pooling is None and network.is_classifier and {p.kind for p in parts} <= {"Transformer"}:
        kind, normalizes = "CrossEncoder", True
        if parts:
            modules.check(path, parts, "Transformer", "Transformer")
        scorer, pooling = network.scorer()
        sources["pooling"] = f"{NETWORK}, architectures"
    elif pooling is Pooling.SPLADE or (pooling is None and modules.makes_words(parts)):
        kind, normalizes = "SparseEncoder", True
        is_tied = network.words_are_tied()
        words, questions, sources["sparse"] = modules.splade(folder, parts, is_tied=is_tied)
        if questions:
            sources["sparse"] += f"; questions: {questions.relative_to(folder)}"
        # The weight of each token in the mean says which tokens a text has.
        pooling = Pooling.MEAN
    else:
        kind, normalizes = "SentenceTransformer", bool(parts) and parts[-1].kind == "Normalize"
        if parts:
            modules.check(path, parts, ORDER, ORDER_TOLD)
        sources["pooling"] = "--pooling"
        if pooling is None:
            path = folder / (parts[1].place if parts else "1_Pooling") / "config.json"
            pooling, key = _pooling(path, parts)
            sources["pooling"] = f"{path.relative_to(folder)}, {key}"
    tokens_max, sources["max_input_tokens"] = _tokens_max(folder, kind)
    prompts, default, source = _prompts(folder, normalizes, kind)
    if not scorer:
        sources["prompts"] = source
    said = (pooling, tokens_max, prompts, default, sources, network)
    return Sentence(*said, *MODELS[kind][:2], scorer, words, questions)


def _pooling(path: Path, parts: list[Module]) -> tuple[Pooling, str]:
    """And the key that says so."""
    if not path.exists():
        raise PackageError(
            f"{path} is missing, so that nothing says how hidden states become one vector: say "
            "--pooling cls, mean or last, as the model's card does, or splade for lexical weights "
            "of a model for masked words"
        )
    stored = JsonFile(path)
    old = [key for key, on in stored.items() if on is True and key.startswith(f"{MODE}_")]
    modes = stored.get(MODE) or [key.removeprefix(f"{MODE}_") for key in old] or "mean"
    modes = [modes] if isinstance(modes, str) else list(modes)
    feeds_dense = any(part.kind == "Dense" for part in parts)
    if len(modes) != 1 or modes[0] not in POOLINGS or (feeds_dense and modes[0] == SCALED):
        named = ", ".join(map(str, modes))
        only = "only cls, mean or lasttoken can be exported"
        raise PackageError(f"{path} has {MODE} {named}: {only}")
    always = "prompts count in the vector here, so name another model"
    stored.demand(stored.get("include_prompt", True) is True, "include_prompt", always)
    stored.demand_known(f"{MODE}_* word_embedding_dimension embedding_dimension")
    return POOLINGS[modes[0]], MODE if stored.get(MODE) or not old else old[0]


def _tokens_max(folder: Path, kind: str) -> tuple[int | None, str]:
    """And what says so; the tokenizer's file is asked when the module's does not say."""
    paths = [folder / f"sentence_{name}_config.json" for name in ENCODERS]
    stored = JsonFile(next((p for p in paths if p.exists()), paths[0]), may_be_missing=True)
    _, _, task, output, name = MODELS[kind]
    way = {"text": {"method": "forward", "method_output_name": output}}
    plain = {"do_lower_case": False, "transformer_task": task}
    plain |= {"modality_config": way, "module_output_name": name}
    if stored.get("do_lower_case") is True:
        normalizer = read_json(folder / "tokenizer.json").get("normalizer") or {}
        steps = normalizer.get("normalizers", [normalizer])
        # Where the tokenizer makes all letters small by itself, it changes nothing.
        if any(s.get("type") == "Lowercase" or s.get("lowercase") is True for s in steps):
            del plain["do_lower_case"]
    for key, only in plain.items():
        stored.demand(stored.get(key, only) == only, key, f"only {only!r} can be served")
    for key in ("model_args", "model_kwargs"):
        if others := sorted(set(stored.of_kind(key, {})) - HARMLESS_ARGUMENTS):
            raise PackageError(f"{stored.path} has {others[0]!r} in {key}: it cannot be served")
    key = "max_seq_length"
    found = stored.get(key)
    stored.demand_known("unpad_inputs")
    if found is None:
        key = "model_max_length"
        stored = JsonFile(folder / "tokenizer_config.json", may_be_missing=True)
        found = stored.get(key)
    if found is None:
        return None, NETWORK
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    wanted = f"a number from {TOKENS_MIN} is needed"
    stored.demand(is_number and found >= TOKENS_MIN, key, wanted)
    # A tokenizer without a limit says 10^30.
    return (int(found), f"{stored.path.name}, {key}") if found < 1 << 24 else (None, NETWORK)


def _prompts(folder: Path, normalizes: bool, kind: str) -> tuple[dict[str, str], str | None, str]:
    """Those of queries and passages by the server's names, the default one, and what says so."""
    of_pairs = kind == "CrossEncoder"
    stored = JsonFile(folder / MODEL, may_be_missing=True)
    told = "its architecture is that of a CrossEncoder"
    told = told if of_pairs else f"only {kind}, {MODELS[kind][1]}, can be served"
    stored.demand(stored.get("model_type", kind) == kind, "model_type", told)
    if of_pairs:
        none = not any(stored.of_kind("prompts", {}).values())
        stored.demand(none, "prompts", "those of a cross-encoder cannot be served")
        stored.demand_known("__version__ activation_fn default_prompt_name similarity_fn_name")
        return {}, None, ""
    measure = stored.get("similarity_fn_name") or "cosine"
    if measure != "cosine" and not normalizes:
        why = "the server gives every vector the length 1, so name a model for the cosine"
        what = f"similarity_fn_name {measure!r} and modules.json no Normalize"
        raise PackageError(f"{stored.path} has {what}: {why}")
    published = {name: text or "" for name, text in stored.of_kind("prompts", {}).items()}
    passage = next((name for name in PASSAGES if name in published), "passage")
    ours = {"query": "query", passage: "passage"}
    prompts = {ours[name]: text for name, text in published.items() if name in ours}
    source = stored.path.name if prompts else "no file has one"
    if others := sorted(published.keys() - ours.keys()):
        source += f"; clients put these in front themselves: {', '.join(others)}"
    default, known = stored.get("default_prompt_name"), ", ".join(["query", *PASSAGES])
    wanted = f"only a prompt for queries or passages ({known}) can be the default"
    is_known = default is None or default in [*(ours.keys() & published.keys())]
    stored.demand(is_known, "default_prompt_name", wanted)
    stored.demand_known("__version__")
    return prompts, ours.get(default), source
