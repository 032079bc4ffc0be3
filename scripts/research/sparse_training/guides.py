"""Reads guides and help pages, as HTML, in sections with language-free keys."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

BOOKS = ("debian-reference", "debian-faq", "developers-reference", "maint-guide")
OFFICE, IMAGES = "libreoffice-help", "gimp-help"
INSTALLATION, HANDBOOK = "installation-guide", "debian-handbook"
HANDBOOK_LANGUAGES = ("de-DE", "en-US", "es-ES", "fr-FR", "it-IT", "ja-JP", "ko-KR", "nl-NL")
HANDBOOK_LANGUAGES += ("pl-PL", "pt-BR", "ru-RU", "sv-SE", "zh-CN")
INSTALLATION_LANGUAGES = ("cs", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pt", "ru", "sv")
INSTALLATION_LANGUAGES += ("zh_CN",)
HEADINGS = {"h1", "h2", "h3", "h4", "h5"}
BLOCKS = {"p", "li", "dd", "dt", "pre", "td", "th", "div", "tr", "ul", "ol", "table", "section"}
INLINE = {"a", "span"}
SKIPPED = {"head", "script", "style", "pre", "table", "aside", "footer"}
"""Their text is no prose: code, output, lists of packages, menus."""
SKIPPED_CLASSES = {"toc", "navheader", "navfooter", "footnotes", "sphinxsidebar", "related"}
SKIPPED_CLASSES |= {"toctree-wrapper", "contents", "footer", "titlepage-author", "headerlink"}
SKIPPED_CLASSES |= {"howtoget", "relatedtopics", "bascode", "pycode", "sqlcode", "noteicon"}
NUMBERING = re.compile(r"^[\s\d.]*(?:(?:第\s*\d+\s*[章节])|(?:[^\W\d]{3,12}\s+\d+\.))?[\s\d.]*")
"""`2.1.1. `, `Chapter 2. `, `第2章 ` before a heading."""


@dataclass(frozen=True)
class Source:
    """One HTML file of one language."""

    lang: str
    page: str
    """What its translations share: a book, or a page where anchors are a page's own."""
    path: Path
    by_place: bool = False
    """Whether sections are told by their place on the page: anchors differ by language."""


@dataclass
class GuideSection:
    """One heading, its paragraphs, and the anchor that all translations share."""

    key: str
    heading: str
    blocks: list[str] = field(default_factory=list)


class GuideParser(HTMLParser):
    """Collects headings and paragraphs of DocBook's and Sphinx's HTML."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.sections: list[GuideSection] = []
        self._anchor = ""
        self._text: list[str] = []
        self._heading: str | None = None
        self._skipping: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if self._skipping:
            if tag == self._skipping[0]:
                self._skipping.append(tag)
            return
        classes = set((values.get("class") or "").split())
        hidden = "hidden" in values or values.get("role") == "navigation"
        if tag in SKIPPED or classes & SKIPPED_CLASSES or hidden:
            if self._heading is None and tag not in INLINE:
                self._end_block()
            self._skipping = [tag]
            return
        if tag in HEADINGS:
            self._end_block()
            self._heading = ""
            self._anchor = values.get("id") or self._anchor
        elif tag in BLOCKS:
            self._end_block()
        anchored = tag == "section" or (tag == "a" and self._heading is not None)
        if anchored and values.get("id"):
            self._anchor = str(values["id"])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag == self._skipping[0]:
                self._skipping.pop()
            return
        if tag in HEADINGS and self._heading is not None:
            heading = NUMBERING.sub("", " ".join("".join(self._text).split()))
            self.sections.append(GuideSection(self._anchor, heading))
            self._text, self._heading, self._anchor = [], None, ""
        elif tag in BLOCKS:
            self._end_block()

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self._text.append(data)

    def _end_block(self) -> None:
        text = " ".join("".join(self._text).split())
        self._text = []
        if text and self.sections and self._heading is None:
            self.sections[-1].blocks.append(text)


def read(source: Source) -> list[GuideSection]:
    """The sections of one HTML file that have an anchor and text."""
    parser = GuideParser()
    parser.feed(source.path.read_text(encoding="utf-8", errors="replace"))
    parser.close()
    if source.by_place:
        for place, section in enumerate(parser.sections):
            section.key = str(place)
    return [section for section in parser.sections if section.key and section.blocks]


def language(package: str) -> str:
    """`debian-faq-zh-cn` -> `zh`, `debian-reference-pt-br` -> `pt`, `debian-faq` -> `en`."""
    match = re.search(r"(?:reference|faq|help|guide)-([a-z]{2})(?:-[a-z]{2})?$", package)
    return match.group(1) if match else "en"


def sources(root: Path, package: str) -> list[Source]:
    """The HTML files of a package, without indexes and duplicates."""
    if package.startswith(OFFICE):
        found = _office(root, language(package))
    elif package.startswith(IMAGES):
        found = _images(root, language(package))
    elif package.startswith(INSTALLATION):
        found = _installation(root / "usr/share/doc" / package)
    elif package.startswith(HANDBOOK):
        found = _handbook(root / "usr/share/doc" / package / "html")
    else:
        book = next(name for name in BOOKS if package.startswith(name))
        found = [Source(language(package), book, path) for path in _files(root)]
    assert found, f"{package} has HTML files"
    return found


def _office(root: Path, lang: str) -> list[Source]:
    """Anchors are those of the page in every language."""
    (top,) = (root / "usr/share/libreoffice/help").glob("*/text")
    paths = sorted(top.rglob("*.html"))
    return [Source(lang, f"{OFFICE}/{path.relative_to(top)}", path) for path in paths]


def _images(root: Path, lang: str) -> list[Source]:
    """The translations have the same files with the same headings."""
    paths = sorted(root.glob("usr/share/gimp/*/help/*/*.html"))
    return [Source(lang, f"{IMAGES}/{path.name}", path, by_place=True) for path in paths]


def _installation(top: Path) -> list[Source]:
    """The translations have the same files with the same headings."""
    found = []
    for folder in INSTALLATION_LANGUAGES:
        for path in sorted((top / folder).glob("*.html")):
            page = f"{INSTALLATION}/{path.name}"
            found.append(Source(folder[:2], page, path, by_place=True))
    return found


def _handbook(top: Path) -> list[Source]:
    """The translations have the same anchors."""
    return [
        Source(folder[:2], HANDBOOK, path)
        for folder in HANDBOOK_LANGUAGES
        for path in sorted((top / folder).glob("*.html"))
    ]


def _files(root: Path) -> list[Path]:
    """Of one guide in one language."""
    found = []
    for path in sorted((root / "usr/share").rglob("*.html")):
        in_docs = path.parent.name == "docs" or path.is_symlink()
        plain_twin = path.with_suffix("").with_suffix(".en.html")
        twin = path.suffixes == [".html"] and plain_twin != path and plain_twin.exists()
        if not in_docs and not twin and not path.name.startswith(("index", "search", "genindex")):
            found.append(path)
    return found
