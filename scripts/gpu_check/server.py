"""A started server of tests/clients, and what its log, /proc and its answers tell of it."""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/clients"))
import server as clients  # noqa: E402

#: Of a line of the log. Python 3.10's `fromisoformat` knows no Z at the end.
TIMESTAMP = "%Y-%m-%dT%H:%M:%S.%f%z"


class Server(clients.Server):
    """`duovec serve` on a free port."""

    def start_up(self) -> list[tuple[float, str]]:
        """What the log says up to when it was ready, with seconds from the first line."""
        said: list[tuple[float, str]] = []
        first = None
        for line in (json.loads(text) for text in self.log if text.startswith("{")):
            at = datetime.strptime(line["timestamp"], TIMESTAMP)
            first = first or at
            said.append(((at - first).total_seconds(), line["message"]))
            if "load_ms" in line:
                break
        return said

    def memory_megabytes(self) -> list[str]:
        """Resident memory now, and the most since the start."""
        return [f"{self.memory_bytes(kind) / 1e6:,.0f}" for kind in ("VmRSS", "VmHWM")]

    def figures(self) -> dict[str, int]:
        """The engine's numbers, such as the free memory of its GPUs."""
        tuning: dict[str, Any] = self.ask("/health")[1]["tuning"]
        return dict(tuning.get("engine_figures") or {})
