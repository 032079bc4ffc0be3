"""Debian's installation guide: its sections in thirteen languages."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from . import packages, passages

NAME, PACKAGE = "installation-guide", "installation-guide-amd64"
LANGUAGES = ("cs", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pt", "ru", "sv", "zh_CN")
"""Each has a folder below the package's documentation."""
HEADINGS = {"h1", "h2", "h3", "h4", "h5"}
BLOCKS = {"p", "li", "dd", "dt", "div", "ul", "ol"}
SKIPPED = {"head", "pre", "table"}
"""Their text is no prose: titles, output, lists of packages."""
SKIPPED_CLASSES = {"toc", "navheader", "navfooter", "footnotes"}
NUMBERING = re.compile(r"^[\s\d.]*(?:(?:第\s*\d+\s*[章节])|(?:[^\W\d]{3,12}\s+\d+\.))?[\s\d.]*")
"""`2.1.1. `, `Chapter 2. `, `第2章 ` before a heading."""


@dataclass
class GuideSection:
    """One heading and its paragraphs."""

    heading: str
    blocks: list[str] = field(default_factory=list)


class GuideParser(HTMLParser):
    """Collects headings and paragraphs of DocBook's HTML."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.sections: list[GuideSection] = []
        self._text: list[str] = []
        self._skipping: list[str] = []
        """The element that is skipped, once for each of its kind that is open in it."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipping:
            self._skipping += [tag] * (tag == self._skipping[0])
            return
        if tag in HEADINGS | BLOCKS | SKIPPED:
            self._end_block()
        if tag in SKIPPED or dict(attrs).get("class") in SKIPPED_CLASSES:
            self._skipping = [tag]

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag == self._skipping[0]:
                self._skipping.pop()
        elif tag in HEADINGS:
            self.sections.append(GuideSection(NUMBERING.sub("", self._take_text())))
        elif tag in BLOCKS:
            self._end_block()

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self._text.append(data)

    def _take_text(self) -> str:
        text = " ".join("".join(self._text).split())
        self._text = []
        return text

    def _end_block(self) -> None:
        text = self._take_text()
        if text and self.sections:
            self.sections[-1].blocks.append(text)


def read(path: Path) -> list[GuideSection]:
    """All sections of one HTML file."""
    parser = GuideParser()
    parser.feed(path.read_text(encoding="utf-8", errors="replace"))
    parser.close()
    return parser.sections


Sections = dict[str, dict[str, GuideSection]]
"""Key, the same in all translations -> language -> section."""


def load() -> Sections:
    """All sections; their package is fetched once."""
    [root] = packages.fetch(PACKAGE)
    return read_sections(root)


def read_sections(root: Path) -> Sections:
    """All sections that have text. Translations of a section have their own anchors: a section is
    told by its file and its place there."""
    sections: Sections = defaultdict(dict)
    for folder in LANGUAGES:
        top = root / "usr/share/doc" / PACKAGE / folder
        for path in sorted(top.glob("*.html")):
            for place, section in enumerate(read(path)):
                if section.blocks:
                    sections[f"{NAME}/{path.name}#{place}"][folder[:2]] = section
    return sections


def prose(section: GuideSection, lang: str) -> list[str]:
    """Its blocks that are prose, and in that language: guides keep English where nobody has
    translated."""
    return [
        block
        for block in section.blocks
        if passages.is_prose(block) and passages.is_in_language(block, lang)
    ]
