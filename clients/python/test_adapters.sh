#!/usr/bin/env bash
# Tests the Python client, and its adapters and the examples with their frameworks and stores:
#
#   clients/python/test_adapters.sh [ARGUMENTS OF pytest]
#
# Those are large (1.7 GB), so they have an environment of their own. DUOVEC_TEST_BINARY names a
# binary that is there already.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib/setup.sh"
answer_help "$@"
cd "$ROOT"

prepare_load
ensure_environment adapters 2500 clients/python/requirements-adapters.txt
say "types with the frameworks"
# Beside the frameworks, since the types without them are checked at the same time.
"$VENV/bin/python" -m mypy --config-file clients/python/pyproject.toml \
    --cache-dir "$VENV/mypy" clients/python/src clients/python/tests
say "the client and all adapters"
"$VENV/bin/python" -m pytest -q -rs clients/python/tests "$@"
