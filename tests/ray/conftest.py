"""Where the client and the tests' modules are, for the nodes of the cluster as well."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT / "clients/python/src"), str(ROOT / "tests/clients")]
sys.path[:0] = FOLDERS
os.environ["PYTHONPATH"] = os.pathsep.join(FOLDERS)
# Nothing of the tests leaves this machine.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
