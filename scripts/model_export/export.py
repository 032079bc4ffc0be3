"""What export_onnx.py does: a plan from what was typed, the files, the checks."""

import argparse
import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

from default_package import checks, command, manifest, vocabulary
from default_package.choices import SHAPES, SPARSE, Description, Pooling, Precision
from default_package.command import say
from default_package.encoder import Architecture, Config, Words
from default_package.errors import PackageError
from families import BERT, XLM_ROBERTA

from . import half, kept, measured, random_encoder, sentence, snapshot, splade
from .sentence import Wishes

EPSILON = 1e-5
"""Of XLM-R's norms."""
XLM_ROBERTA_PAD = 1


def run(options: argparse.Namespace) -> None:
    """Any of the commands."""
    for precision in (Precision.FP16, Precision.BF16):
        if package := getattr(options, f"{precision.value}_of_package"):
            half.add(package.resolve(), precision)
            return
    if not options.random:
        export_named(options)
    elif options.out is None:
        raise PackageError("--out is missing: name the folder of the package")
    else:
        out = options.out.resolve()
        export(options, random_plan(options, out), out)


def export_named(options: argparse.Namespace) -> None:
    """A folder's model, or one on the hub. Prints the package that it chose a place for."""
    if (most := options.max_tokens) is not None and most < sentence.TOKENS_MIN:
        raise PackageError(f"--max-tokens is {most}: at least {sentence.TOKENS_MIN} are needed")
    folder = Path(options.model).resolve()
    if folder.is_dir():
        key = "" if options.out else kept.state(folder)
        export_from(options, folder, kept.hub_name(folder), key)
    elif options.model.startswith((".", "/", "~")):
        raise PackageError(f"{folder} is no folder: name that of a model, or a model's hub name")
    else:
        # Loaded only where there is something to ask of a hub.
        from . import hub

        name, revision = kept.name_and_revision(options.model)
        commit = kept.commit(options) or hub.resolve(name, revision)
        with kept.locked(name):
            folder = hub.fetch(name, commit, _wishes(options))
            export_from(options, folder, name, commit)
            kept.note(name, revision, commit)


def export_from(options: argparse.Namespace, folder: Path, name: str, key: str) -> None:
    """To --out, or where packages of the model `name` are kept, unless it is there already."""
    if options.out:
        out = options.out.resolve()
        export(options, snapshot_plan(options, folder, out.name), out)
        return
    out = kept.place(options, name, key)
    if not kept.is_whole(out):
        export(options, snapshot_plan(options, folder, name.split("/")[-1]), out)
    print(out)


def export(options: argparse.Namespace, plan: manifest.Plan, out: Path) -> None:
    """Builds, checks and puts in place."""
    precision, encoder = Precision(options.precision), plan.encoder
    say(f"exporting {encoder.weight_count / 1e6:.0f} M weights as {precision.value}")
    if encoder.head is None and not encoder.architecture.words:
        say("there is no lexical head: the package will have dense vectors only")
    # What is in 16 bits lies beside what is in f32 for a while.
    weight_bytes = 4 if precision is Precision.FP32 else 4 + 2
    with command.replacing(out, encoder.weight_count * weight_bytes + 50_000_000) as folder:
        manifest.write(plan, folder, partial(half.write, precision=precision))
        if options.skip_verify:
            say("not verified")
        else:
            checks.run_all(folder, encoder.architecture, precision)
            content = measured.added(folder, manifest.read(folder), plan.vocabulary)
            manifest.save(content, folder / manifest.NAME)


def snapshot_plan(options: argparse.Namespace, folder: Path, name: str) -> manifest.Plan:
    """What --model asks for, from the folder with its files; what was typed wins over them."""
    wishes, names = _wishes(options), os.listdir(folder)
    said = snapshot.check(folder, names, wishes)
    if snapshot.COLBERT_FILE in names and not wishes.tokens and not said.kind:
        say("token vectors are left out: --token-vectors takes them in")
    prompts, typed = _prompts(options), {}
    if most := options.max_tokens:
        said, typed["max_input_tokens"] = replace(said, tokens_max=most), "--max-tokens"
    if prompts:
        files = [said.sources["prompts"]] if said.prompts else []
        typed["prompts"] = ", ".join([*(f"--{kind}-prompt" for kind in prompts), *files])
    if said.kind and (options.shorter_vectors or (said.scorer and prompts)):
        flags = ["--query-prompt", "--passage-prompt"] if said.scorer else []
        named = ", ".join([*flags, "--shorter-vectors"])
        raise PackageError(f"not for models such as {name}, which is {said.what}: {named}")
    encoder = snapshot.open_encoder(folder, said, wishes)
    width = encoder.architecture.width
    dimensions = said.network.dimensions(width)
    if dimensions:
        said.sources["matryoshka_dimensions"] = "config.json"
    if options.shorter_vectors:
        dimensions, typed["matryoshka_dimensions"] = options.shorter_vectors, "--shorter-vectors"
        if not 0 < min(dimensions) <= max(dimensions) < width:
            raise PackageError(f"--shorter-vectors: numbers from 1 to {width - 1} are needed")
    commit = folder.name if kept.COMMIT.fullmatch(folder.name) else "local"
    published, model_id = kept.hub_name(folder), options.model_id or name
    about = Description(
        model_id,
        aliases=[*([published] if published not in (model_id, commit) else []), *options.alias],
        revision=options.revision or commit,
        license=options.license or published_license(folder),
        prompts=said.prompts | prompts,
        default_prompt=said.default_prompt or ("query" if "query" in prompts else None),
        matryoshka_dimensions=dimensions,
        sources=said.sources | typed,
        kind=said.kind,
    )
    values = {"max_input_tokens": encoder.architecture.max_input_tokens, "prompts": about.prompts}
    values |= {"pooling": said.pooling.value, "matryoshka_dimensions": dimensions}
    values["sparse"] = f"the {splade.KEPT} strongest words of a text"
    for field, source in about.sources.items():
        say(f"  {field}: {values[field] or 'none'} ({source})")
    words = vocabulary.read(folder / snapshot.TOKENIZER_FILE, encoder.architecture.pad_token_id)
    questions = said.splade and said.splade.questions
    encoder = snapshot.fitted(
        encoder,
        words,
        with_types=said.scorer is not None and snapshot.tells_pairs_apart(folder, encoder.sizes),
        quiet=questions is not None,
    )
    weights = splade.question_weights(questions, words) if questions else None
    normalization = options.normalization if words.has_charsmap else None
    return manifest.Plan(encoder, words, about, normalization, questions=weights)


def _wishes(options: argparse.Namespace) -> Wishes:
    pooling = Pooling(options.pooling) if options.pooling else None
    return Wishes(pooling, sparse=not options.no_sparse, tokens=options.token_vectors)


def _prompts(options: argparse.Namespace) -> dict[str, str]:
    typed = {"query": options.query_prompt, "passage": options.passage_prompt}
    return {kind: text for kind, text in typed.items() if text is not None}


def random_plan(options: argparse.Namespace, out: Path) -> manifest.Plan:
    """What --random asks for; as many word rows as the tokenizer has tokens."""
    given = {name: getattr(options, name) for name in SHAPES["small"]}
    sizes = SHAPES[options.shape] | {k: v for k, v in given.items() if v is not None}
    for name, value in sizes.items():
        if value < 1:
            raise PackageError(f"--{name} is {value}: at least 1 is needed")
    if sizes["hidden"] % (2 * sizes["heads"]):
        raise PackageError(
            f"--hidden {sizes['hidden']} is not an even number for each of {sizes['heads']} heads"
        )
    if not options.tokenizer.is_file():
        raise PackageError(
            f"there is no tokenizer at {options.tokenizer}: make the default package first "
            "(scripts/make_default_package.py), or name one with --tokenizer"
        )
    family = BERT if options.family == BERT.name else XLM_ROBERTA
    words = vocabulary.read(options.tokenizer, XLM_ROBERTA_PAD)
    config = Config(**sizes, vocab_rows=words.size, type_rows=1, layer_norm_epsilon=EPSILON)
    wishes, of_words = _wishes(options), None
    pooling, width = wishes.pooling or Pooling.CLS, config.hidden if wishes.tokens else None
    if pooling is Pooling.SPLADE:
        pooling, of_words = Pooling.MEAN, Words(splade.KEPT)
    architecture = Architecture(
        config, family, pooling, XLM_ROBERTA_PAD, token_width=width, words=of_words
    )
    if architecture.max_input_tokens < 3:
        raise PackageError(f"--positions {sizes['positions']} leaves no room for a text")
    with_head = of_words is None and (wishes.sparse or wishes.tokens)
    encoder = random_encoder.make(architecture, options.seed, with_head=with_head)
    prompts = _prompts(options)
    about = Description(
        model_id=options.model_id or out.name,
        aliases=options.alias,
        revision=options.revision or f"random-seed-{options.seed}",
        license=options.license or "Apache-2.0",
        prompts=prompts,
        default_prompt="query" if "query" in prompts else None,
        kind=SPARSE if of_words else None,
    )
    normalization = options.normalization if words.has_charsmap else None
    return manifest.Plan(encoder, words, about, normalization)


def published_license(folder: Path) -> str:
    """The `license:` line of the model card, or `unknown`."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    found = re.match(r"---\n(?:.*\n)*?license:[ \t]*([\w.\-]+)[ \t]*\n", text)
    return found[1] if found else "unknown"
