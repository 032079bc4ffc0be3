"""The report: Markdown with one line for each check, whole on disk after each line."""

import os
import subprocess
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Of a program's words, what the report shows.
CODE_CHARACTERS_MAX = 6000


class SkipSection(Exception):
    """Why a section cannot be done on this machine; no fault of what is checked."""


class Report:
    """Sections in their order, and how the checks ended."""

    def __init__(self, path: Path, title: str) -> None:
        self.path, self.title = path, title
        self.lines: list[str] = []
        self.passed = self.failed = 0
        self.ended = False
        self._write()

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        """One section. Whatever goes wrong in it is a failed check, and the next one begins."""
        self.say(f"\n## {title}\n")
        started = time.monotonic()
        try:
            yield
        except SkipSection as reason:
            self.skip(str(reason))
        except subprocess.TimeoutExpired as error:
            self.check(False, f"{title}: a command did not end within {error.timeout:.0f} s")
            self.code(" ".join(map(str, error.cmd)))
        except Exception as error:
            self.check(False, f"{title}: {type(error).__name__}: {error}")
            self.code("".join(traceback.format_exception(error)))
        self.say(f"\n{time.monotonic() - started:.1f} s")

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)
        self._write()

    def check(self, holds: bool, text: str) -> bool:
        """Adds the line of a check; whether it holds."""
        self.passed += holds
        self.failed += not holds
        self.say(f"- {'PASS' if holds else 'FAIL'} {text}")
        return holds

    def skip(self, text: str) -> None:
        self.say(f"- SKIP {text}")

    def code(self, text: str) -> None:
        """Adds a program's own words, their end where they are long."""
        self.say(f"\n```text\n{text.strip()[-CODE_CHARACTERS_MAX:]}\n```\n")

    def table(self, head: list[str], rows: list[list[str]]) -> None:
        """Adds a table, with numbers to the right."""
        lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---:"] * len(head), *rows]]
        self.say("\n" + "\n".join(lines) + "\n")

    def end(self) -> bool:
        """Whether every check passed; without this call the report says that it is a part."""
        self.ended = True
        self._write()
        print(f"\n{self._summary()} The report is in {self.path}", flush=True)
        return self.failed == 0

    def _summary(self) -> str:
        counted = f"{self.passed} checks passed, {self.failed} failed."
        return counted if self.ended else f"{counted} The check did not come to its end."

    def _write(self) -> None:
        # A kill at any moment leaves the report of the last line.
        text = f"# {self.title}\n\n{self._summary()}\n" + "\n".join(self.lines) + "\n"
        unfinished = self.path.with_name(self.path.name + ".unfinished")
        unfinished.write_text(text)
        os.replace(unfinished, self.path)
