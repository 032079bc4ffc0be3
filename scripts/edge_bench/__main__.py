"""What scripts/edge_bench.sh runs."""

import argparse
from pathlib import Path

from default_package import command
from edge_bench import SECTIONS


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="scripts/edge_bench.sh",
        description="Measures single texts beside floods, huge bodies, deep checks, slow clients, "
        "bodies that never come and answers that nobody takes, each against the same server "
        "undisturbed. About twenty minutes by default.",
    )
    parser.add_argument("--only", action="append", choices=SECTIONS, help="may be repeated")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load, default 20")
    parser.add_argument("--slow-seconds", type=float, default=60.0, help="of slow, default 60")
    parser.add_argument("--rate", type=float, default=25.0, help="single texts a second")
    parser.add_argument("--idle", type=int, default=10_000, help="idle connections")
    parser.add_argument("--slow", type=int, default=100, help="slow heads, and as many bodies")
    parser.add_argument("--unread", type=int, default=2000, help="connections that do not read")
    parser.add_argument("--rest-seconds", type=float, default=60.0, help="behind unread")
    parser.add_argument("--out", type=Path, help="folder for table.md and results.json")
    parser.add_argument("arguments", nargs="*", help="arguments of duovec serve, behind --")
    typed = parser.parse_args()
    if typed.seconds < 1 or typed.slow_seconds < 1 or typed.rate <= 0:
        parser.error("--seconds and --slow-seconds are at least 1, --rate is above 0")
    return command.run("edge_bench.sections", typed, load=True)


if __name__ == "__main__":
    raise SystemExit(main())
