"""Texts in thirteen languages from Debian's installation guide, the same on every machine."""

import itertools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

from debian_texts import guide, passages

from .vectors import Dialect

SEED = "http load"
TOKENS_MEDIAN, TOKENS_SPREAD, TOKENS_MAX = 35.0, 0.8, 400.0
"""Lengths are drawn log-normally: with the tokens of prompt and ends, 46 on average."""
TOKENS_MIN = 4.0


def load(count: int) -> list[str]:
    """`count` texts in random order."""
    sections = guide.load()
    chance = random.Random(SEED)
    texts: dict[str, None] = {}
    for lang in sorted({lang for by_lang in sections.values() for lang in by_lang}):
        translated = (by_lang[lang] for by_lang in sections.values() if lang in by_lang)
        blocks = [block for section in translated for block in guide.prose(section, lang)]
        texts.update(dict.fromkeys(pieces(blocks, chance)))
    return chance.sample(list(texts), count)


def write_lines(path: Path, values: list) -> None:
    """One JSON value a line."""
    lines = (json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    path.write_text("".join(lines), encoding="utf-8")


def sample(texts: list[str], count: int) -> list[str]:
    """At most `count` texts whose lengths are spread as those of all: chance would shift the mean
    of a few hundred by some percent."""
    ordered = sorted(texts, key=passages.token_estimate)
    count = min(count, len(ordered))
    return [ordered[(2 * at + 1) * len(ordered) // (2 * count)] for at in range(count)]


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
