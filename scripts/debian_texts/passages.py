"""Blocks of text -> passages of about one size, without what is no prose in the page's language."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

WIDE = re.compile("[\u2e80-\U0010ffff]")
"""Chinese, Japanese and Korean characters stand there; one is more than half a token."""
TOKENS_PER_WIDE, TOKENS_PER_NARROW = 0.65, 0.27
PASSAGE_TOKENS_WANTED = 80.0
PASSAGE_TOKENS_MIN = 25.0
PASSAGE_TOKENS_MAX = 160.0
REPEATS_MAX = 2
"""A block that more pages of a language share is boilerplate: licences, where to report bugs."""
ADDRESS = re.compile(r"://|\w@\w|https?:")
REFERENCE = re.compile(r"\w\(\d\w?\)")
REFERENCE_SHARE_MAX = 0.3
"""More references to other pages than that, by word, is a list for further reading."""
ENGLISH = {"the", "and", "this", "that", "with", "which", "are", "from", "be"}
"""Frequent in English and absent from the other languages here."""
ENGLISH_SHARE_MAX = 0.06
SCRIPTS = {
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "ja": re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
}
SCRIPT_SHARE_MIN = 0.25


def token_estimate(text: str) -> float:
    """Roughly how many tokens; only for sizes, so that cutting needs no tokenizer."""
    wide = len(WIDE.findall(text))
    return wide * TOKENS_PER_WIDE + (len(text) - wide) * TOKENS_PER_NARROW


def cut(text: str, tokens_max: float) -> str:
    """The head of `text`, at a word's end where there are spaces."""
    if token_estimate(text) <= tokens_max:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if token_estimate(text[:middle]) <= tokens_max else (low, middle - 1)
        )
    head = text[:low]
    spaced = head.rsplit(" ", 1)[0]
    return spaced if len(spaced) > len(head) / 2 else head


def is_in_language(text: str, lang: str) -> bool:
    """Whether a text is translated: guides and pages keep English where nobody has."""
    if lang == "en":
        return True
    words = re.findall(r"[a-z]+", text.lower())
    if words and sum(word in ENGLISH for word in words) / len(words) > ENGLISH_SHARE_MAX:
        return False
    script = SCRIPTS.get(lang)
    letters = sum(character.isalpha() for character in text)
    return script is None or len(script.findall(text)) >= SCRIPT_SHARE_MIN * letters


def is_prose(block: str) -> bool:
    """No addresses, no lists of pages, and letters in it."""
    words = block.split()
    if ADDRESS.search(block) or len(REFERENCE.findall(block)) > REFERENCE_SHARE_MAX * len(words):
        return False
    return sum(character.isalpha() for character in block) >= len(block) / 2


def repeated(pages: Iterable[Iterable[str]]) -> set[str]:
    """Blocks that stand in more than REPEATS_MAX pages of one language."""
    counts = Counter(block for page in pages for block in set(page))
    return {block for block, count in counts.items() if count > REPEATS_MAX}


def merge(blocks: Iterable[str]) -> list[str]:
    """Joins neighbours up to the wanted size; what stays too short is dropped."""
    found: list[str] = []
    open_text = ""
    for block in blocks:
        joined = f"{open_text} {block}".strip()
        if open_text and token_estimate(joined) > PASSAGE_TOKENS_MAX:
            found.append(open_text)
            joined = block
        open_text = joined
        if token_estimate(open_text) >= PASSAGE_TOKENS_WANTED:
            found.append(open_text)
            open_text = ""
    found.append(open_text)
    texts = (cut(text, PASSAGE_TOKENS_MAX) for text in found)
    return [text for text in texts if token_estimate(text) >= PASSAGE_TOKENS_MIN]


def spread(items: list, count: int) -> list:
    """At most `count` items, the first one and then evenly spaced."""
    if len(items) <= count:
        return items
    return [items[i * len(items) // count] for i in range(count)]


def share(name: str, seed: str) -> float:
    """A number in [0, 1) that depends on the text only: the same on every machine and run."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8]) / 2.0**64
