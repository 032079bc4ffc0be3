"""The report: Markdown with one line for each check."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Report:
    """Sections in their order, and how the checks ended."""

    lines: list[str] = field(default_factory=list)
    passed: int = 0
    failed: int = 0

    def section(self, title: str) -> None:
        """Begins a section."""
        self.say(f"\n## {title}\n")

    def say(self, text: str) -> None:
        """Adds a line, and shows it."""
        print(text, flush=True)
        self.lines.append(text)

    def check(self, holds: bool, text: str) -> bool:
        """Adds the line of a check; whether it holds."""
        self.passed += holds
        self.failed += not holds
        self.say(f"- {'PASS' if holds else 'FAIL'} {text}")
        return holds

    def skip(self, text: str) -> None:
        """Adds the line of a check that was not made."""
        self.say(f"- SKIP {text}")

    def code(self, text: str) -> None:
        """Adds a program's own words."""
        self.say(f"\n```text\n{text.strip()}\n```\n")

    def table(self, head: list[str], rows: list[list[str]]) -> None:
        """Adds a table, with numbers to the right."""
        self.say("")
        for cells in [head, ["---:"] * len(head), *rows]:
            self.say("| " + " | ".join(cells) + " |")
        self.say("")

    def write(self, path: Path, title: str) -> None:
        """Writes it with the count of its checks on top."""
        summary = f"{self.passed} checks passed, {self.failed} failed."
        path.write_text(f"# {title}\n\n{summary}\n" + "\n".join(self.lines) + "\n")
        print(f"\n{summary} The report is in {path}", flush=True)
