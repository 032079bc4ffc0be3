#!/usr/bin/env bash
# Measures the server's edge: single texts beside floods, huge bodies, deep checks and slow clients.
# Sets up all it needs and prints a table. Load goes to this machine only.
#
#   scripts/edge_bench.sh [--only SECTION] [--seconds N] [--out FOLDER] [-- ARGUMENTS OF THE SERVER]
#
# DUOVEC_TEST_BINARY names a binary that is measured instead of the built one.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"

need_python
PYTHONPATH="$ROOT/scripts" exec python3 -m edge_bench "$@"
