"""Manual pages in eleven languages that the default package's head was not trained or chosen on."""

from __future__ import annotations

import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from debian_texts import manual_pages, packages, passages
from debian_texts.manual_pages import FOLDERS, Page
from debian_texts.passages import share

from .score import Collection, Passage, Query

LANGUAGES = ("de", "es", "fr", "it", "ja", "nl", "pl", "pt-br", "ru", "zh")
ENGLISH = ("manpages", "manpages-dev", "coreutils", "util-linux", "findutils", "systemd")
ENGLISH += ("procps", "grep", "sed", "tar", "bash", "cron")
"""Where the translated pages have their originals."""
WITHOUT_DEVELOPER_PAGES = {"zh"}
"""One package holds all sections."""
PACKAGES = (
    *ENGLISH,
    *(f"manpages-{lang}" for lang in LANGUAGES),
    *(f"manpages-{lang}-dev" for lang in LANGUAGES if lang not in WITHOUT_DEVELOPER_PAGES),
    packages.RENDERER,
)
GROUPS_MAX = 600
"""Page names that are read, those in most languages first; what two CPU cores embed in minutes."""
HELD_OUT_FROM = 0.78
"""Share of the names: the head was made with those below."""
SEED = "manual pages"
PASSAGES_PER_PAGE = 6
HEADINGS_PER_PAGE = 2
OPTIONS_PER_PAGE = 2
QUERY_TOKENS_MAX = 40.0
OPTION = re.compile(r"^--?[A-Za-z][\w-]*")
THREADS = 2


def read(cache: Path) -> list[Page]:
    """The same packages give the same pages."""
    found = packages.fetch_all(PACKAGES, cache)
    by_name = {package.name: package for package in found}
    return read_pages(found, by_name[packages.RENDERER].root / "usr/bin/mandoc")


def assemble(pages: list[Page]) -> Collection:
    """Pairs the pages that are held out; the order of the pages counts."""
    groups = unite(pages)
    boilerplate = {
        lang: passages.repeated(page.blocks for page in pages if page.lang == lang)
        for lang in sorted({page.lang for page in pages})
    }
    collection = Collection()
    seen: set[str] = set()
    entries = []
    for page in pages:
        texts = new_texts(page, boilerplate[page.lang], seen)
        if texts and is_held_out(groups[page.stem]):
            entries.append(Entry(page, groups[page.stem], texts, collection))
    for entry in entries:
        collection.queries.extend(entry.own_queries())
    for source, target in counterparts(entries):
        collection.queries.extend(source.queries_to(target))
    return collection


def is_held_out(group: str) -> bool:
    """The same for all pages of one group."""
    return share(group, SEED) >= HELD_OUT_FROM


def new_texts(page: Page, boilerplate: set[str], seen: set[str]) -> list[tuple[str, str]]:
    """Headings with passages of a page, which are put into `seen`.

    What is there is of pages before: a copy would be a second right answer.
    """
    texts = []
    # The first section is the synopsis.
    for section in page.sections[1:]:
        good = [b for b in section.blocks if b not in boilerplate and passages.is_prose(b)]
        texts += [(section.heading, text) for text in passages.merge(good)]
    texts = [t for t in texts if t[1] not in seen and passages.is_in_language(t[1], page.lang)]
    chosen = passages.spread(texts, PASSAGES_PER_PAGE)
    seen.update(text for _, text in chosen)
    return chosen


def read_pages(found: list[packages.Unpacked], renderer: Path) -> list[Page]:
    """The pages whose names are translated most, one for each language and file name."""
    sources: dict[tuple[str, str], Path] = {}
    for package in found:
        lang = language(package.name)
        for name, path in manual_pages.sources(package.root, FOLDERS.get(lang, lang)).items():
            sources.setdefault((lang, name), path)
    langs = defaultdict(set)
    for lang, name in sources:
        langs[name].add(lang)
    names = sorted(langs, key=lambda name: (-len(langs[name]), share(name, SEED)))
    wanted = set(names[:GROUPS_MAX])
    jobs = [(path, lang) for (lang, name), path in sorted(sources.items()) if name in wanted]
    with ThreadPoolExecutor(THREADS) as pool:
        pages = pool.map(lambda job: manual_pages.read(*job, renderer), jobs)
        return [page for page in pages if page is not None]


def language(package: str) -> str:
    """`manpages-pt-br-dev` -> `pt`, `coreutils` -> `en`."""
    match = re.match(r"manpages-(?!dev)([a-z]{2})", package)
    return match.group(1) if match else "en"


def unite(pages: list[Page]) -> dict[str, str]:
    """File stem -> group: pages that share any name, in any language, are one group."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            name = parent[name]
        return name

    for page in pages:
        for name in page.names:
            first, second = sorted((root(page.stem), root(name)))
            parent[second] = first
    return {page.stem: root(page.stem) for page in pages}


class Entry:
    """One page with the passages that it gave to the collection."""

    def __init__(
        self, page: Page, group: str, texts: list[tuple[str, str]], into: Collection
    ) -> None:
        self.page, self.group = page, group
        self._collection = into
        self.headings: dict[str, list[int]] = defaultdict(list)
        for heading, text in texts:
            self.headings[heading].append(len(into.passages))
            into.passages.append(Passage(page.lang, group, text))
        self.numbers = tuple(i for found in self.headings.values() for i in found)

    def own_queries(self) -> list[Query]:
        """From the page's summary and its headings to its own passages."""
        lang = self.page.lang
        found = []
        if passages.is_in_language(self.page.summary, lang):
            found.append(self._query(lang, "summary", self.page.summary, self.numbers))
        later = list(self.headings)[1:]
        for heading in passages.spread(later, HEADINGS_PER_PAGE):
            text = f"{self.page.stem} {heading}"
            found.append(self._query(lang, "heading", text, tuple(self.headings[heading])))
        return found

    def queries_to(self, other: Entry) -> list[Query]:
        """From this page's title and options to the same page in another language."""
        lang = other.page.lang
        found = []
        if passages.is_in_language(self.page.summary, self.page.lang):
            found.append(self._query(lang, "title", self.page.title, other.numbers))
        pairs = [
            (block, holders)
            for option, block in options(self.page).items()
            if (holders := other.with_option(option))
        ]
        for block, holders in passages.spread(pairs, OPTIONS_PER_PAGE):
            found.append(self._query(lang, "option", block, holders))
        return found

    def with_option(self, option: str) -> tuple[int, ...]:
        """Passages that name an option."""
        named = re.compile(rf"(?<![\w-]){re.escape(option)}(?![\w-])")
        return tuple(i for i in self.numbers if named.search(self._collection.passages[i].text))

    def _query(self, target: str, kind: str, text: str, relevant: tuple[int, ...]) -> Query:
        short = passages.cut(text, QUERY_TOKENS_MAX)
        return Query(self.page.lang, target, kind, self.group, short, relevant)


def options(page: Page) -> dict[str, str]:
    """Option -> the block that explains it, where that says something in the page's language."""
    found: dict[str, str] = {}
    for block in page.blocks:
        match = OPTION.match(block)
        long = re.findall(r"(?<![\w-])--[a-z][\w-]+", block)
        if match and " " in block and passages.is_in_language(block, page.lang):
            found.setdefault(long[0] if long else match.group(), block)
    return found


def counterparts(entries: list[Entry]) -> list[tuple[Entry, Entry]]:
    """Every page with its English original, both ways."""
    english = {(e.page.stem, e.group): e for e in entries if e.page.lang == "en"}
    found = []
    for entry in entries:
        original = english.get((entry.page.stem, entry.group))
        if entry.page.lang != "en" and original is not None:
            found += [(entry, original), (original, entry)]
    return found
