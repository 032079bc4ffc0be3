"""Texts in ten languages from Debian's manual pages, cached and the same on every machine."""

import hashlib
import itertools
import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path

from debian_texts import manual_pages, packages, passages
from debian_texts.manual_pages import FOLDERS
from debian_texts.passages import share
from default_package.command import say
from default_package.errors import PackageError

from .vectors import Dialect

PACKAGES = {"en": "manpages", "pt": "manpages-pt-br"}
"""Where a language's pages are, if not in `manpages-` and its own code."""
LANGUAGES = ("de", "en", "es", "fr", "it", "ja", "pl", "pt", "ru", "zh")
SEED = "http load"
TOKENS_MEDIAN, TOKENS_SPREAD, TOKENS_MAX = 29.0, 0.8, 400.0
"""Lengths are drawn log-normally: with the tokens of prompt and ends, 46 on average."""
TOKENS_MIN = 4.0
TEXTS_PER_PAGE = 12


def load(count: int, cache: Path) -> list[str]:
    """`count` texts in random order, as many of each language; read and rendered once."""
    names = [PACKAGES.get(lang, f"manpages-{lang}") for lang in LANGUAGES]
    found = packages.fetch_all((*names, packages.RENDERER), cache / "training")
    recipe = hashlib.sha256(Path(__file__).read_bytes())
    for part in (*(package.sha256 for package in found), str(count)):
        recipe.update(part.encode())
    path = cache / "http-bench" / f"texts-{recipe.hexdigest()[:16]}.jsonl"
    if not path.exists():
        say(f"reading {count} texts from manual pages in {len(LANGUAGES)} languages (once)")
        write_lines(path, _make(count, found))
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, values: list) -> None:
    """One JSON value a line; the file is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    lines = (json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    try:
        part.write_text("".join(lines), encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def sample(texts: list[str], count: int) -> list[str]:
    """At most `count` texts whose lengths are spread as those of all: chance would shift the mean
    of a few hundred by some percent."""
    ordered = sorted(texts, key=passages.token_estimate)
    count = min(count, len(ordered))
    return [ordered[(2 * at + 1) * len(ordered) // (2 * count)] for at in range(count)]


def _make(count: int, found: list[packages.Unpacked]) -> list[str]:
    renderer = found[-1].root / "usr/bin/mandoc"
    texts: list[str] = []
    for at, (lang, package) in enumerate(zip(LANGUAGES, found[:-1], strict=True)):
        wanted = count * (at + 1) // len(LANGUAGES) - count * at // len(LANGUAGES)
        got = list(itertools.islice(_texts_of(lang, package, renderer), wanted))
        if len(got) < wanted:
            raise PackageError(
                f"{package.name} has {len(got)} texts, {wanted} are needed: ask for fewer --texts"
            )
        texts += got
    random.Random(SEED).shuffle(texts)
    return texts


def _texts_of(lang: str, package: packages.Unpacked, renderer: Path) -> Iterator[str]:
    """Pages in an order that depends on their names only."""
    chance = random.Random(f"{SEED} {lang}")
    sources = manual_pages.sources(package.root, FOLDERS.get(lang, lang))
    seen: set[str] = set()
    for name in sorted(sources, key=lambda name: share(name, SEED)):
        blocks = [
            block
            for block in manual_pages.paragraphs(sources[name], renderer)
            if passages.is_prose(block) and passages.is_in_language(block, lang)
        ]
        for text in itertools.islice(pieces(blocks, chance), TEXTS_PER_PAGE):
            if text not in seen:
                seen.add(text)
                yield text


def pieces(blocks: list[str], chance: random.Random) -> Iterator[str]:
    """Blocks, joined and cut to lengths that are drawn."""
    rest = iter(blocks)
    for block in rest:
        wanted = chance.lognormvariate(math.log(TOKENS_MEDIAN), TOKENS_SPREAD)
        wanted = min(max(wanted, TOKENS_MIN), TOKENS_MAX)
        text = block
        while passages.token_estimate(text) < wanted:
            more = next(rest, None)
            if more is None:
                break
            text = f"{text} {more}"
        text = passages.cut(text, wanted)
        if passages.token_estimate(text) >= TOKENS_MIN / 2:
            yield text


def bodies(texts: list[str], each: int, dialect: Dialect) -> list[dict]:
    """Request bodies that hold every text once, `each` at a time, the last one filled up."""
    endless = itertools.cycle(texts)
    groups = [list(itertools.islice(endless, each)) for _ in range(math.ceil(len(texts) / each))]
    return [dialect.body(group if each > 1 else group[0]) for group in groups]
