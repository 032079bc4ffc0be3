"""The second domain, which training never sees: Debian's guides, all of it for testing."""

from __future__ import annotations

from collections import defaultdict

from . import guides, packages, passages
from .collection import Collection, Passage, Query, share

SEED = "guides"
SECTIONS_PER_LANGUAGE = 260
PASSAGES_PER_SECTION = 3
HEADING_TOKENS_MIN = 3.0
SPLIT = "test"


Sections = dict[str, dict[str, guides.GuideSection]]
"""Key, the same in all translations -> language -> section."""


def make(found: list[packages.Unpacked]) -> Collection:
    """Sections by anchor; a heading asks for the paragraphs below it, in its own language and,
    where English takes part, in the other."""
    sections = read_sections(found)
    collection = Collection()
    numbers = add_passages(sections, collection)
    langs = sorted({lang for _, lang in numbers})
    for (key, lang), own in numbers.items():
        heading = sections[key][lang].heading
        if not _can_ask(heading, lang):
            continue
        collection.queries.append(Query(SPLIT, lang, lang, "heading", key, heading, own))
        for other in ["en"] if lang != "en" else langs:
            if other != lang and (key, other) in numbers:
                there = numbers[key, other]
                query = Query(SPLIT, lang, other, "heading", key, heading, there)
                collection.queries.append(query)
    return collection


def read_sections(found: list[packages.Unpacked]) -> Sections:
    """All sections of all guides; of two packages in one language the first counts."""
    sections: Sections = defaultdict(dict)
    for package in found:
        lang, book = guides.language(package.name), guides.book(package.name)
        for path in guides.files(package.root, package.name):
            for section in guides.read(path):
                sections[f"{book}#{section.key}"].setdefault(lang, section)
    return sections


def add_passages(
    sections: Sections, collection: Collection
) -> dict[tuple[str, str], tuple[int, ...]]:
    """Adds the sections with most translations; (key, language) -> positions of its passages."""
    boilerplate = {
        lang: passages.repeated(s[lang].blocks for s in sections.values() if lang in s)
        for lang in sorted({lang for found in sections.values() for lang in found})
    }
    numbers: dict[tuple[str, str], tuple[int, ...]] = {}
    taken: dict[str, int] = defaultdict(int)
    seen: set[str] = set()
    order = sorted(sections, key=lambda key: (-len(sections[key]), share(key, SEED)))
    for key in order:
        for lang, section in sorted(sections[key].items()):
            texts = _texts(section, lang, boilerplate[lang], seen)
            if taken[lang] >= SECTIONS_PER_LANGUAGE or not texts:
                continue
            taken[lang] += 1
            first = len(collection.passages)
            collection.passages += [Passage(SPLIT, lang, key, text) for text in texts]
            numbers[key, lang] = tuple(range(first, len(collection.passages)))
            seen.update(texts)
    return numbers


def _texts(
    section: guides.GuideSection, lang: str, boilerplate: set[str], seen: set[str]
) -> list[str]:
    good = [b for b in section.blocks if b not in boilerplate and passages.is_prose(b)]
    good = [b for b in good if passages.is_in_language(b, lang)]
    merged = [text for text in passages.merge(good) if text not in seen]
    return passages.spread(merged, PASSAGES_PER_SECTION)


def _can_ask(heading: str, lang: str) -> bool:
    enough = passages.token_estimate(heading) >= HEADING_TOKENS_MIN
    return enough and passages.is_in_language(heading, lang)
