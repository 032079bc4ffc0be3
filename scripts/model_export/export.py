"""What export_onnx.py does: a plan from what was typed, the files, the checks."""

import argparse
import os
import re
from collections.abc import Collection
from functools import partial
from pathlib import Path

from default_package import checks, command, manifest, vocabulary
from default_package.choices import Precision
from default_package.command import say
from default_package.errors import PackageError

from . import half, kept, modules, sentence, snapshot


def run(options: argparse.Namespace) -> None:
    """Adds a graph to a package, or exports a folder's model, or one on the hub. Prints the package
    that it chose a place for."""
    for precision in (Precision.FP16, Precision.BF16):
        if package := getattr(options, f"{precision.value}_of_package"):
            half.add(package.resolve(), precision)
            return
    if (most := options.max_tokens) is not None and most < sentence.TOKENS_MIN:
        raise PackageError(f"--max-tokens is {most}: at least {sentence.TOKENS_MIN} are needed")
    folder = Path(options.model).resolve()
    name, revision, key = kept.target(options)
    if is_of_hub := not folder.is_dir():
        if options.model.startswith((".", "/", "~")):
            what = f"{folder} is no folder"
            raise PackageError(f"{what}: name the folder of a model, or its name on the hub")
        # Loaded only where there is something to ask of a hub.
        from . import hub

        key = key or hub.resolve(name, revision)
        with kept.locked(name):
            folder, files = hub.fetch(name, key, options)
    else:
        files = os.listdir(folder)
    if options.out:
        out = options.out.resolve()
        export(options, snapshot_plan(options, folder, files, out.name), out)
    else:
        out = kept.place(options, name, key)
        with kept.locked(name):
            if not kept.is_whole(out):
                plan = snapshot_plan(options, folder, files, name.split("/")[-1])
                export(options, plan, out)
        print(out)
    if is_of_hub:
        kept.note(name, revision, key)


def export(options: argparse.Namespace, plan: manifest.Plan, out: Path) -> None:
    """Builds, checks and puts in place."""
    precision, encoder = Precision(options.precision), plan.encoder
    say(f"exporting {encoder.weight_count / 1e6:.0f} M weights as {precision.value}")
    if precision is not Precision.FP32:
        say("16 bits are for GPUs: give --precision fp32 for CPUs, where f32 takes half the memory")
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
            content = checks.added(folder, manifest.read(folder), plan.vocabulary)
            manifest.save(content, folder / manifest.NAME)


def snapshot_plan(
    options: argparse.Namespace, folder: Path, files: Collection[str], name: str
) -> manifest.Plan:
    """What --model asks for, of the model whose files have these names, and of which those that are
    needed lie in the folder. What was typed wins over them."""
    said = snapshot.check(folder, files, options)
    if snapshot.COLBERT_FILE in files and not said.tokens and not said.kind:
        say("token vectors are left out: --token-vectors takes them in")
    prompts, typed = {"query": options.query_prompt, "passage": options.passage_prompt}, {}
    prompts = {kind: text for kind, text in prompts.items() if text is not None}
    if prompts:
        also = [said.sources["prompts"]] if said.prompts else []
        typed["prompts"] = ", ".join([*(f"--{kind}-prompt" for kind in prompts), *also])
    if said.kind and (options.shorter_vectors or (said.scorer and prompts)):
        flags = ["--query-prompt", "--passage-prompt"] if said.scorer else []
        named = ", ".join([*flags, "--shorter-vectors"])
        raise PackageError(f"not for models such as {name}, which is {said.what}: {named}")
    encoder = snapshot.open_encoder(folder, said)
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
    about = {
        "model_id": model_id,
        "aliases": [*([published] if published not in (model_id, commit) else []), *options.alias],
        "revision": options.revision or commit,
        "license": options.license or published_license(folder),
        "prompts": said.prompts | prompts,
        "default_prompt": said.default_prompt or ("query" if "query" in prompts else None),
        "matryoshka_dimensions": dimensions,
        "sources": said.sources | typed,
    }
    if said.kind:
        about["kind"] = said.kind
    values = {"max_input_tokens": encoder.architecture.max_input_tokens}
    values["pooling"] = said.pooling.value
    values["sparse"] = f"the {modules.KEPT} strongest words of a text"
    for field, source in about["sources"].items():
        say(f"  {field}: {(about | values)[field] or 'none'} ({source})")
    words = vocabulary.read(folder / snapshot.TOKENIZER_FILE, encoder.architecture.pad_token_id)
    if words.has_charsmap:
        about["tokenizer"] = {"normalization": options.normalization}
    pairs, questions = folder if said.scorer else None, said.questions
    encoder = snapshot.fitted(encoder, words, pairs=pairs, quiet=questions is not None)
    weights = modules.question_weights(questions, words) if questions else None
    return manifest.Plan(encoder, words, about, weights)


def published_license(folder: Path) -> str:
    """The `license:` line of the model card, or `unknown`."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    found = re.match(r"---\n(?:(?!---).*\n)*?license:[ \t]*([\w.\-]+)[ \t]*\n", text)
    return found[1] if found else "unknown"
