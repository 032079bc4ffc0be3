"""Debian's installation guide: headings and sentences ask for paragraphs, in thirteen languages."""

import re
from collections import defaultdict
from collections.abc import Sequence

from debian_texts import passages
from debian_texts.guide import GuideSection, Sections, load, prose
from debian_texts.passages import share

from .score import Collection, Passage, Query

TITLE = "installation guide"
SECTIONS_MAX = 120
"""Of each language."""
SEED = "guides"
PASSAGES_PER_SECTION = 3
HEADING_TOKENS_MIN = 3.0
SENTENCE_TOKENS_MIN, SENTENCE_TOKENS_MAX = 8.0, 40.0
SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])")
Numbers = dict[tuple[str, str], tuple[int, ...]]
"""Key and language -> positions of the section's passages."""


def make(languages: Sequence[str]) -> Collection:
    """A heading asks for the paragraphs below it, and so does the sentence that begins them, which
    is taken out; in its own language and, where English takes part, in the other."""
    sections = load()
    sentences = take_sentences(sections)
    collection = Collection()
    numbers = add_passages(sections, languages, collection)
    others = sorted(set(languages) - {"en"})
    for key, lang in numbers:
        original = sections[key].get("en")
        heading, abroad = sections[key][lang].heading, ["en"]
        if lang == "en":
            abroad = others
        elif original and heading == original.heading:
            heading = ""  # nobody has translated it
        sentence = sentences.get((key, lang), "")
        for text, targets in ((heading, abroad), (sentence, abroad if lang != "en" else [])):
            if _can_ask(text, lang):
                asked = [(to, numbers.get((key, to))) for to in (lang, *targets)]
                collection.queries += [Query(to, text, found) for to, found in asked if found]
    return collection


def take_sentences(sections: Sections) -> dict[tuple[str, str], str]:
    """Takes the first sentence out of each section whose first paragraph has more of them."""
    taken = {}
    for key, by_lang in sections.items():
        for lang, section in by_lang.items():
            first, *later = section.blocks
            sentence, *rest = SENTENCE_END.split(first, maxsplit=1)
            fits = SENTENCE_TOKENS_MIN <= passages.token_estimate(sentence) <= SENTENCE_TOKENS_MAX
            if fits and rest and rest[0] and passages.is_prose(first):
                taken[key, lang] = sentence
                section.blocks = [rest[0], *later]
    return taken


def add_passages(sections: Sections, languages: Sequence[str], collection: Collection) -> Numbers:
    """Adds the sections with most translations, in these languages."""
    boilerplate = {
        lang: passages.repeated(s[lang].blocks for s in sections.values() if lang in s)
        for lang in sorted({lang for found in sections.values() for lang in found})
    }
    numbers: Numbers = {}
    taken: dict[str, int] = defaultdict(int)
    seen: set[str] = set()
    order = sorted(sections, key=lambda key: (-len(sections[key]), share(key, SEED)))
    for key in order:
        for lang, section in sorted(sections[key].items()):
            texts = _texts(section, lang, boilerplate[lang], seen)
            if taken[lang] >= SECTIONS_MAX or not texts:
                continue
            taken[lang] += 1
            seen.update(texts)
            if lang in languages:
                first = len(collection.passages)
                collection.passages += [Passage(lang, text) for text in texts]
                numbers[key, lang] = tuple(range(first, len(collection.passages)))
    return numbers


def _texts(section: GuideSection, lang: str, boilerplate: set[str], seen: set[str]) -> list[str]:
    good = [block for block in prose(section, lang) if block not in boilerplate]
    merged = [text for text in passages.merge(good) if text not in seen]
    return passages.spread(merged, PASSAGES_PER_SECTION)


def _can_ask(text: str, lang: str) -> bool:
    enough = passages.token_estimate(text) >= HEADING_TOKENS_MIN
    return enough and passages.is_in_language(text, lang)
