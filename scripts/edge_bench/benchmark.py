"""The chosen measurements, one after the other, then a table and JSON."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from load import report, servers

from . import SECTIONS, sections
from .measured import Measured


def run(typed: argparse.Namespace) -> None:
    """Measures, prints, writes."""
    texts = [entry["text"] for entry in servers.project_texts() if entry["text"].strip()]
    load_before = os.getloadavg()[0]
    chosen = typed.only or SECTIONS
    with tempfile.TemporaryDirectory(prefix="duovec-edge-") as folder:
        measured = Measured(typed, texts, Path(folder))
        for name in SECTIONS:
            if name in chosen:
                getattr(sections, name)(measured)
    heading = (
        f"{os.cpu_count()} cores, busy with {load_before:.1f} others before; "
        f"{typed.seconds:g} s each, slow {typed.slow_seconds:g} s; "
        f"{typed.rate:g} single texts/s; load and server on the same machine"
    )
    cores = ", ".join(f"{name} {seen['sender_cores']:.2f}" for name, seen in measured.seen.items())
    report.write(
        typed.out,
        "table",
        [heading, f"cores of the senders: {cores}"],
        [report.figures(measured.figures)],
        arguments=typed.arguments,
        figures=[vars(figure) for figure in measured.figures],
        seen=measured.seen,
    )
