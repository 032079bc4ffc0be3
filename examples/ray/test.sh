#!/usr/bin/env bash
# Tests examples/ray on a real Ray cluster of two nodes on this machine, and the examples of
# docs/corpus.md:
#
#   examples/ray/test.sh [ARGUMENTS OF pytest]
#
# Ray and the others are large (800 MB with what they need), so they have an environment of their
# own. DUOVEC_TEST_BINARY names a binary that is there already.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib/setup.sh"
answer_help "$@"
cd "$ROOT"

need_tools
need_cache
if [ -z "${DUOVEC_TEST_BINARY:-}" ]; then
    ensure_binary default
    export DUOVEC_TEST_BINARY="$BINARY"
fi

ensure_environment ray 1500 examples/ray/requirements.txt tests/ray/requirements.txt
"$VENV/bin/python" -m pytest -q -rs tests/ray "$@"
