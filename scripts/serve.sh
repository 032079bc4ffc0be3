#!/usr/bin/env bash
# Sets up all that is needed, builds the release binary and serves the default package on
# 127.0.0.1:8080:
#
#   scripts/serve.sh [ARGUMENTS OF duovec serve]
#
# Once it is built, `target/release/duovec serve --help` lists the arguments.
set -euo pipefail

# shellcheck source=scripts/lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"

answer_help "$@"
need_tools
need_cache
ensure_venv "$ROOT/scripts/requirements.txt"
if [ -z "${DUOVEC_PACKAGE:-}" ]; then
    ensure_package
    export DUOVEC_PACKAGE="$ROOT/engines/$PACKAGE_NAME"
fi
ensure_binary default
say "starting $BINARY"
exec "$BINARY" serve "$@"
