#!/usr/bin/env bash
# Drives a real server for an hour with everything at once: mixed requests, sizes up to the limits,
# clients that leave or are slow, deep checks, keys that change, stops and hangs. Checks that every
# request ended once and that nothing leaks. Load goes to this machine only.
#
#   scripts/soak.sh [--minutes N] [--real] [-- ARGUMENTS OF duovec serve]
#
# DUOVEC_TEST_BINARY names a binary that is driven instead of the built one.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"

need_python
PYTHONPATH="$ROOT/scripts" exec python3 -m soak "$@"
