"""Texts made of words in many scripts, the same in every run."""

from __future__ import annotations

import random
import unicodedata
from collections import defaultdict

from server import texts as sentences

SEED = 20260917
PIECES = ["<s>", "</s>", "<mask>", "<unk>", "＜s＞", "[CLS]"]
SIGNS = ["😀", "👩\u200d💻", "🇩🇪", "1\ufe0f\u20e3", "…", "—", "½", "№", "x²", "42", "3.14", "#tag"]
MARKS = ["\u0301", "\u0308", "\u0323", "\u3099", "\u093c", "\u200b", "\u200d", "\ufeff", "\u00ad"]
CONTROLS = ["\0", "\x07", "\x1b", "\x7f", "\x85", "\t", "\n", "\u2028", "\ufffd", "\ue000", "𐀀"]


def words_by_language() -> dict[str, list[str]]:
    """Words of the project's own sentences; parts of those that have no spaces."""
    found: dict[str, list[str]] = defaultdict(list)
    for entry in sentences():
        for word in entry["text"].split():
            step = 4 if len(word) > 24 else len(word)
            found[entry["lang"]] += [word[i : i + step] for i in range(0, len(word), step)]
    return found


def generated(count: int, longest: int, seed: int = SEED) -> list[str]:
    """`count` different texts of up to `longest` words."""
    choose = random.Random(seed)
    by_language = words_by_language()
    languages = sorted(by_language)
    found: dict[str, None] = dict.fromkeys(["", " ", "\u200b", "<s>", "<mask>", "the the the"])
    while len(found) < count:
        words = by_language[choose.choice(languages)]
        picked = [choose.choice(words) for _ in range(choose.randint(1, longest))]
        found[_varied(picked, by_language[choose.choice(languages)], choose)] = None
    return list(found)


def _varied(picked: list[str], other: list[str], choose: random.Random) -> str:
    """The words as they are, or with something unusual among them."""
    place = choose.randrange(len(picked) + 1)
    match choose.randrange(10):
        case 0:
            picked.insert(place, choose.choice(SIGNS))
        case 1:
            picked.insert(place, choose.choice(PIECES))
        case 2:
            picked += [choose.choice(picked)] * choose.randint(1, 3)
        case 3:
            picked += [choose.choice(other) for _ in range(2)]
        case 4:
            picked = [word.upper() for word in picked]
    return " ".join(picked)


def disturbed(count: int, seed: int = SEED) -> list[str]:
    """Texts in which anything may stand anywhere: decomposed, with marks, controls, no spaces."""
    choose = random.Random(seed)
    unusual = [*SIGNS, *PIECES, *MARKS, *CONTROLS]
    found = []
    for text in generated(count, 12, seed + 1):
        form = choose.choice(["NFC", "NFD", "NFKD", "NFC"])
        characters = list(unicodedata.normalize(form, text))
        for _ in range(choose.randint(0, 6)):
            place = choose.randrange(len(characters) + 1)
            characters.insert(place, choose.choice([*unusual, _any_character(choose)]))
        found.append("".join(characters).replace(" ", choose.choice([" ", " ", "", "  ", "▁"])))
    return found


def _any_character(choose: random.Random) -> str:
    """Any of Unicode, more often of its first planes."""
    code_point = choose.randrange(choose.choice([0x250, 0x3000, 0xD800, 0x20000, 0x110000]))
    return "?" if 0xD800 <= code_point <= 0xDFFF else chr(code_point)
