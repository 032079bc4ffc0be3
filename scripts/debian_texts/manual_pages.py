"""Renders manual pages with mandoc and splits them into sections and blocks of text."""

import gzip
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

OVERSTRIKE = re.compile(r".\x08")
"""How mandoc prints bold and underlined characters on a terminal."""
LINE_WIDTH = 1000
"""Wide enough that nearly every paragraph is one line, so that none is broken inside a word."""
TEXT_INDENT_MIN = 5
"""Spaces before text; section headings have none and subsection headings three."""
NAME_LINE = re.compile(r"^(?P<names>.{1,200}?)\s+[-–—―]+\s+(?P<summary>\S.*)$")
FOLDERS = {"en": ".", "pt": "pt_BR", "zh": "zh_CN"}
"""Where a language's pages lie below usr/share/man, if not under its own code."""
STUB_BYTES_MAX = 200
"""A shorter source is a `.so` line: the same page under another name."""


@dataclass(frozen=True)
class Section:
    """One heading and what stands below it."""

    heading: str
    blocks: tuple[str, ...]
    """Paragraphs and list items in order, each one line."""


@dataclass(frozen=True)
class Page:
    """One manual page in one language."""

    lang: str
    stem: str
    """The file's name without the manual section, such as `ls`."""
    names: tuple[str, ...]
    """All names that the page gives itself."""
    title: str
    """The line `names - summary` as printed."""
    summary: str
    sections: tuple[Section, ...]
    """Without the first one, which holds the title."""

    @property
    def blocks(self) -> list[str]:
        """Of all sections."""
        return [block for section in self.sections for block in section.blocks]


def sources(root: Path, folder: str) -> dict[str, Path]:
    """File name without `.gz` -> source, for all regular pages in one language's folder."""
    found = {}
    for path in sorted((root / "usr/share/man" / folder).glob("man[1-8]/*")):
        if path.is_file() and not path.is_symlink():
            found[path.name.removesuffix(".gz")] = path
    return found


def read(path: Path, lang: str, renderer: Path) -> Page | None:
    """None for stubs, for pages that are not UTF-8, and for pages without a title line."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        raw = file.read()
    if len(raw) < STUB_BYTES_MAX:
        return None
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    command = [str(renderer), "-T", "utf8", "-K", "utf-8", "-O", f"width={LINE_WIDTH}"]
    ran = subprocess.run(command, input=raw, capture_output=True, check=False)
    stem = path.name.removesuffix(".gz").rsplit(".", 1)[0]
    return parse(ran.stdout.decode("utf-8", errors="replace"), lang, stem)


def parse(rendered: str, lang: str, stem: str) -> Page | None:
    """What mandoc printed -> a page; None when there is no title line."""
    lines = OVERSTRIKE.sub("", rendered).splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    sections = _sections(lines[1:-1])
    if not sections or not sections[0].blocks:
        return None
    title = sections[0].blocks[0]
    match = NAME_LINE.match(title)
    if match is None:
        return None
    names = tuple(name for name in re.split(r"[,、，\s]+", match["names"]) if name.isascii())
    return Page(lang, stem, names, title, match["summary"], tuple(sections[1:]))


def _sections(lines: list[str]) -> list[Section]:
    """Splits at lines with little or no indent; blank lines end a block."""
    found: list[Section] = []
    heading, blocks, block = "", [], []

    def end_block() -> None:
        if block:
            blocks.append(" ".join(block))
            block.clear()

    for line in [*lines, "end"]:
        text = " ".join(line.split())
        indent = len(line) - len(line.lstrip())
        if not text:
            end_block()
        elif indent >= TEXT_INDENT_MIN:
            block.append(text)
        else:
            end_block()
            if heading:
                found.append(Section(heading, tuple(blocks)))
            heading, blocks = text, []
    return found
