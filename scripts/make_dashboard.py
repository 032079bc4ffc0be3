#!/usr/bin/env python3
"""Makes deploy/grafana/duovec.json, the Grafana dashboard of duovec servers.

    scripts/make_dashboard.py

Prometheus must scrape the servers. The same bytes come out of every run; a test compares them with
the file and runs each query.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from default_package import command, environment

OUT = command.ROOT / "deploy/grafana/duovec.json"


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT, help="file to write")
    return command.run("dashboard.board", parser.parse_args(), environment.TEST_REQUIREMENTS)


if __name__ == "__main__":
    sys.exit(main())
