"""Renders manual pages with mandoc and takes their paragraphs."""

import gzip
import re
import subprocess
from pathlib import Path

OVERSTRIKE = re.compile(r".\x08")
"""How mandoc prints bold and underlined characters on a terminal."""
LINE_WIDTH = 1000
"""Wide enough that nearly every paragraph is one line, so that none is broken inside a word."""
TEXT_INDENT_MIN = 5
"""Spaces before text; section headings have none and subsection headings three."""
TITLE = re.compile(r".{1,200}?\s+[-–—―]+\s+\S")
"""`names - summary`."""
FOLDERS = {"en": ".", "pt": "pt_BR", "zh": "zh_CN"}
"""Where a language's pages lie below usr/share/man, if not under its own code."""
STUB_BYTES_MAX = 200
"""A shorter source is a `.so` line: the same page under another name."""


def sources(root: Path, folder: str) -> dict[str, Path]:
    """File name without `.gz` -> source, for all regular pages in one language's folder."""
    found = {}
    for path in sorted((root / "usr/share/man" / folder).glob("man[1-8]/*")):
        if path.is_file() and not path.is_symlink():
            found[path.name.removesuffix(".gz")] = path
    return found


def paragraphs(path: Path, renderer: Path) -> list[str]:
    """As `parse` has them; none of stubs and of pages that are not UTF-8."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        raw = file.read()
    if len(raw) < STUB_BYTES_MAX:
        return []
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return []
    command = [str(renderer), "-T", "utf8", "-K", "utf-8", "-O", f"width={LINE_WIDTH}"]
    ran = subprocess.run(command, input=raw, capture_output=True, check=False)
    return parse(ran.stdout.decode("utf-8", errors="replace"))


def parse(rendered: str) -> list[str]:
    """The paragraphs and list items that mandoc printed, each one line, without those of the first
    section, which holds the title; none of a page without a title line."""
    lines = OVERSTRIKE.sub("", rendered).splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    title, *sections = _sections(lines[1:-1]) or [[]]
    if not title or not TITLE.match(title[0]):
        return []
    return [block for section in sections for block in section]


def _sections(lines: list[str]) -> list[list[str]]:
    """The blocks below each heading, which has little or no indent; blank lines end a block."""
    found: list[list[str]] = []
    block: list[str] = []
    for line in [*lines, ""]:
        text = " ".join(line.split())
        if text and len(line) - len(line.lstrip()) >= TEXT_INDENT_MIN:
            block.append(text)
            continue
        if block and found:
            found[-1].append(" ".join(block))
        block = []
        if text:
            found.append([])
    return found
