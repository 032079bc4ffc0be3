"""A local copy of a published model: what it says of its network, and its weights by our names.

They are checked before any is read.
"""

import argparse
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from default_package import encoder
from default_package.choices import Pooling
from default_package.encoder import WORD_TABLE, Architecture, Encoder, SparseHead, tensor_shapes
from default_package.errors import JsonFile, PackageError, read_json
from default_package.vocabulary import Vocabulary
from families import Family

from . import kept, modules, sentence, stored
from .configuration import HARMLESS, QUANTIZED
from .sentence import Sentence
from .stored import FLOATS, Stored

OLDER_NAMES = {
    # BERT's first releases were converted with these, and were never renamed.
    "LayerNorm.weight": "LayerNorm.gamma",
    "LayerNorm.bias": "LayerNorm.beta",
    "predictions.decoder.bias": "predictions.bias",
}
"""How names end -> how the same ones may end."""
TOKENIZER_FILE = "tokenizer.json"
NORMALIZER = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"}
NORMALIZER |= {"tokenize_chinese_chars": "handle_chinese_chars"}
"""Key of tokenizer_config.json -> that of tokenizer.json."""
HEAD_FILE = "sparse_linear.pt"
COLBERT_FILE = "colbert_linear.pt"  # lies beside it in BGE-M3, and gives each token a vector


def open_encoder(folder: Path, said: Sentence, headers: Mapping[str, Any] | None = None) -> Encoder:
    """Finds the weights and checks the name and shape of each against config.json. `headers`,
    shapes and types by name, are enough to check a model whose weights are not there yet, but for
    its heads."""
    architecture = read_config(said)
    sizes, family, weights = architecture.sizes, architecture.family, headers
    if weights is None:
        files = weight_files(folder, os.listdir(folder))
        weights = {name: one for file in files for name, one in stored.read(folder / file).items()}
    # What stands before every name, as it does before this one: nothing, `bert.`, `roberta.` …
    words = published_name(family, WORD_TABLE)[0]
    prefixes = [name.removesuffix(words) for name in weights if name.endswith(words)]
    if len(prefixes) != 1:
        raise PackageError(f"the weights in {folder} have {len(prefixes)} tables {words}, not 1")
    # More layers than config.json tells would give another model without a word.
    layer = re.escape(prefixes[0] + family.published["fo"].partition("#")[0]) + r"(\d+)\."
    numbers = [int(found[1]) for name in weights if (found := re.match(layer, name))]
    if (depth := max(numbers, default=-1) + 1) > sizes.layers:
        raise PackageError(f"the weights have {depth} layers, config.json says {sizes.layers}")
    behind: dict[str, Stored] = {}
    if not said.scorer:
        dense, behind = modules.dense(folder, sizes.hidden)
        architecture = replace(architecture, dense=dense)
    if said.tokens and headers is None:
        where, found = f"the numbers in {COLBERT_FILE}", stored.read(folder / COLBERT_FILE)
        # The file says how wide a token's vector is.
        width = (*found["weight"].shape, 0)[0] if "weight" in found else 0
        behind["tok.w"] = _take(found, "weight", (width, sizes.hidden), where)
        behind["tok.b"] = _take(found, "bias", (width,), where)
        architecture = replace(architecture, token_width=width)
    shapes = tensor_shapes(architecture)

    def take(name: str) -> Stored:
        published, sharers = published_name(family, name)
        published = published if published.startswith("*") else prefixes[0] + published
        if said.scorer and name.startswith("dense1"):
            score = _take(weights, published, (1, *shapes[name][1:]))
            return modules.beside_steady(score, name)
        rows = [shapes[sharer][0] for sharer in sharers]
        found = _take(weights, published, (sum(rows), *shapes[name][1:]))
        if len(rows) == 1 or headers is not None:
            return found
        start = sum(rows[: sharers.index(name)])
        own = slice(start, start + shapes[name][0])
        return replace(found, shape=shapes[name], part=lambda rows: found.part(own)[rows])

    tensors = {name: behind.get(name) or take(name) for name in shapes}
    # The `classifier` of a classifier of texts gives no lexical weights.
    name = None if said.network.is_classifier else family.head
    with_head = said.sparse and said.kind is None and headers is None
    head = _head(folder, weights, sizes.hidden, name) if with_head else None
    return Encoder(architecture, lambda name, rows: tensors[name].read(rows), head)


def published_name(family: Family, name: str) -> tuple[str, list[str]]:
    """`l3.q.w` -> `encoder.layer.3.attention.self.query.weight`, and our names that share it. `*`
    at the beginning stands for anything."""
    layer, part, kind = re.fullmatch(r"(l\d+\.)?(.+?)(\.[wb])?", name).groups("")
    [ours] = [ours for ours in family.published if part in ours.split("+")]
    published = family.published[ours].replace("#", layer[1:-1])
    sharers = [f"{layer}{sharer}{kind}" for sharer in ours.split("+")]
    return f"{published}.{'bias' if kind == '.b' else 'weight'}", sharers


def check(folder: Path, names: Collection[str], options: argparse.Namespace) -> Sentence:
    """What the small files and the command line say of a model that can be served; `names` are all
    files that it has."""
    with_sparse, with_tokens = not options.no_sparse, options.token_vectors
    said = sentence.read(folder, Pooling(options.pooling) if options.pooling else None)
    said = replace(said, sparse=with_sparse, tokens=with_tokens)
    if options.max_tokens:
        said = replace(said, tokens_max=options.max_tokens)
        said.sources["max_input_tokens"] = "--max-tokens"
    if TOKENIZER_FILE not in names:
        save = "save the model with AutoTokenizer and save_pretrained of transformers"
        raise PackageError(f"{folder / TOKENIZER_FILE} is missing: {save}, and name that folder")
    _check_normalizer(folder, said.network.family)
    if said.kind:
        if with_tokens:
            raise PackageError(f"--token-vectors is for models of vectors: {folder} is {said.what}")
        if said.words and not with_sparse:
            raise PackageError(f"--no-sparse leaves nothing of {folder}: it is {said.what}")
        return said
    is_bge_m3 = "bge-m3" in kept.hub_name(folder).lower() or COLBERT_FILE in names
    if with_sparse and is_bge_m3 and HEAD_FILE not in names:
        cure = "add the file, or say --no-sparse for dense vectors alone"
        what = f"{folder / HEAD_FILE} is missing, the sparse head of BGE-M3"
        raise PackageError(f"{what}: {cure}")
    if with_tokens and not with_sparse:
        raise PackageError("--token-vectors and --no-sparse do not go together: leave one out")
    if with_tokens and COLBERT_FILE not in names:
        cure = "add the file, or leave --token-vectors out"
        what = f"{folder / COLBERT_FILE} is missing, the head for token vectors that BGE-M3 has"
        raise PackageError(f"{what}: {cure}")
    return said


def _check_normalizer(folder: Path, family: Family) -> None:
    """Refuses a tokenizer.json that transformers would not go by: its classes for BERT, DistilBERT
    and MPNet make the normalizer anew, of tokenizer_config.json alone."""
    about = JsonFile(folder / "tokenizer_config.json", may_be_missing=True)
    kind, made = about.of_kind("tokenizer_class", family.name), {}
    if re.match("(distil)?bert|mpnet|nomic", kind.lower()):
        made = read_json(folder / TOKENIZER_FILE).get("normalizer") or {}
    for key, ours in NORMALIZER.items() if made.get("type") == "BertNormalizer" else ():
        # Where nothing is said, accents go with the case.
        usual = made.get("lowercase", True) if key == "strip_accents" else True
        theirs, own = (usual if v is None else v for v in (about.get(key), made.get(ours)))
        why = f"transformers goes by it, and tokenizer.json has {ours} {own!r}"
        about.demand(theirs == own, key, f"{why}: save the tokenizer again")


def weight_files(folder: Path, names: Collection[str]) -> list[str]:
    """Of all files, the one of the weights, or the parts that its index names."""
    for name in stored.FILES:
        index = folder / f"{name}.index.json"
        if name in names:
            return [name]
        if index.name in names:
            break
    else:
        none = f"no weights that can be read, neither {' nor '.join(stored.FILES)}"
        save = "save the model with save_pretrained of transformers and name that folder"
        raise PackageError(f"{folder} has {none}: {save}")
    parts = read_json(index).get("weight_map")
    if not isinstance(parts, dict):
        raise PackageError(f"{index} has no weight_map")
    found = sorted(set(map(str, parts.values())))
    for name in found:
        if Path(name).name != name or name not in names:
            raise PackageError(f"{index} names {name!r}, which is no file beside it")
    return found


def _take(
    weights: Mapping[str, Stored], name: str, shape: tuple[int, ...], where: str = "the weights"
) -> Stored:
    """By its name, of which `*` stands for any beginning, or by an older one."""
    older = (name.removesuffix(new) + old for new, old in OLDER_NAMES.items() if name.endswith(new))
    ends = ((one, one.removeprefix("*")) for one in (name, *older))
    same = (
        found
        for one, end in ends
        for found in weights
        if found == end or (one != end and found.endswith(f".{end}"))
    )
    name = next(same, name.removeprefix("*"))
    if name not in weights:
        raise PackageError(f"{where} lack the tensor {name}")
    found = weights[name]
    if found.dtype not in FLOATS:
        raise PackageError(f"tensor {name} of {where} is stored as {found.dtype}: {QUANTIZED}")
    if tuple(found.shape) != shape:
        has, wanted = f"has shape {list(found.shape)}", f"config.json asks for {list(shape)}"
        raise PackageError(f"tensor {name} of {where} {has}, {wanted}")
    return found


def _head(
    folder: Path, weights: Mapping[str, Stored], hidden: int, name: str | None
) -> SparseHead | None:
    """That of its own file, or the one that is called `name` among the other weights."""
    before, where = "", f"the numbers in {HEAD_FILE}"
    if (path := folder / HEAD_FILE).is_file():
        weights, name = stored.read(path), "sparse_linear"
    elif name and f"{name}.weight" in weights:
        before, where = f"{name}.", "the weights"
    else:
        return None
    weight = _take(weights, f"{before}weight", (1, hidden), where).read()[0]
    bias = _take(weights, f"{before}bias", (1,), where).read()
    return SparseHead(weight.tolist(), float(bias[0]), f"the model's own {name} layer")


def fitted(
    network: Encoder, words: Vocabulary, *, pairs: Path | None = None, quiet: bool = False
) -> Encoder:
    """The same encoder for this tokenizer, which has fewer tokens where files pad the word table.
    `pairs`: the folder of a cross-encoder. `quiet`: special tokens are no words of documents, since
    no question asks for them."""
    found, known = network.architecture, network.sizes.vocab_rows
    inputs = ["token_type_ids"]
    if pairs:
        about = JsonFile(pairs / "tokenizer_config.json", may_be_missing=True)
        inputs = about.of_kind("model_input_names", inputs)
    if words.size > known:
        raise PackageError(f"tokenizer.json has {words.size} tokens, the model knows only {known}")
    found = replace(found, sizes=replace(found.sizes, vocab_rows=words.size))
    if pairs and "token_type_ids" in inputs and found.sizes.type_rows > 1:
        # The tokens of a pair's second text have a type of their own.
        found = replace(found, separator=words.separator)
    if quiet and found.words:
        found = replace(found, words=replace(found.words, silent=tuple(words.wordless_ids)))
    return replace(network, architecture=found)


def read_config(said: Sentence) -> Architecture:
    """The snapshot's architecture."""
    file, scorer = said.network, said.scorer
    sizes, family, head = file.sizes(), file.family, ()
    if scorer:
        # The score is the first of the two numbers of the second product.
        first = (sizes.hidden, scorer.biased, scorer.activation, family.has("dense0.ln"))
        head = (encoder.Dense(*first), encoder.Dense(2, biased=True))
    has_padding = family.padding_has_positions or file.get("pad_token_id") is not None
    found = Architecture(
        sizes=sizes,
        family=family,
        pooling=said.pooling,
        # Where no position depends on it, it only fills rows.
        pad_token_id=file.whole("pad_token_id", 0) if has_padding else 0,
        attentions=file.attentions(sizes),
        dense=head,
        tokens_max=said.tokens_max,
        words=said.words,
    )
    # After all else was asked for: a key that nobody understands may change the vectors.
    file.known.update(key for key, value in file.items() if not value)
    file.demand_known(f"{HARMLESS} {family.harmless}")
    if (said.tokens_max or 0) > found.max_input_tokens:
        if (source := said.sources["max_input_tokens"]) == "--max-tokens":
            takes = f"the model takes {found.max_input_tokens}"
            raise PackageError(f"{source} is {said.tokens_max}: {takes}")
        said.sources["max_input_tokens"] = sentence.NETWORK
    return found
