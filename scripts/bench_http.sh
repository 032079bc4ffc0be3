#!/usr/bin/env bash
# Measures the server over HTTP with real texts: sets up all it needs, builds the binary, and prints
# a table; JSON is written beside it. Load goes to this machine only.
#
#   scripts/bench_http.sh [--seconds N] [--small] [--out FOLDER]
#       [-- ARGUMENTS OF duovec serve]
#   scripts/bench_http.sh --against URL [--dialect openai|tei] [--model NAME] [--rounds N] [...]
#
# --against measures another server of this machine in turn with ours, and prints ratios.
# DUOVEC_TEST_BINARY names a binary that is measured instead of the built one.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"

need_python
PYTHONPATH="$ROOT/scripts" exec python3 -m http_bench "$@"
