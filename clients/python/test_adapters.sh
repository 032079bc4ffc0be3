#!/usr/bin/env bash
# Tests the adapters with their frameworks, which are large (1.5 GB): scripts/test.sh does not.
# Arguments go to pytest. DUOVEC_TEST_BINARY names a binary that is there already.
set -euo pipefail

# shellcheck source=scripts/lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib/setup.sh"
cd "$ROOT"

need_tools
need_cache
# The default package and OpenVINO, for the test with the default model.
ensure_venv scripts/requirements.txt scripts/requirements-test.txt
ensure_package
if [ -z "${DUOVEC_TEST_BINARY:-}" ]; then
    ensure_binary default
    export DUOVEC_TEST_BINARY="$BINARY"
fi
export DUOVEC_PACKAGE=${DUOVEC_PACKAGE:-$ROOT/engines/$PACKAGE_NAME}

FRAMEWORKS="$CACHE/adapters-$( (python3 -V && cat clients/python/requirements-adapters.txt \
    scripts/requirements-test.txt) | sha256sum | cut -c1-16)"
if [ ! -e "$FRAMEWORKS/bin/python" ]; then
    need_disk "$CACHE" 2500 "the environment with the frameworks"
    say "installing the frameworks into $FRAMEWORKS (some minutes, once)"
    (made_whole "$FRAMEWORKS" fill_venv clients/python/requirements-adapters.txt) || exit 1
fi

say "types with the frameworks"
"$FRAMEWORKS/bin/python" -m mypy --config-file clients/python/pyproject.toml \
    clients/python/src clients/python/tests
say "the client and all adapters"
"$FRAMEWORKS/bin/python" -m pytest -q -rs clients/python/tests "$@"
