# shellcheck shell=bash
# shellcheck disable=SC2034  # BINARY is for the scripts that source this one
# How the scripts of tests build and lint, so that what one of them has built the others find built.
# Sourced after steps.sh.

# One set of features for everything that runs: for another set the server is compiled once more,
# and with other features of proc-macro2 nearly every dependency.
FEATURES=(--features "tensorrt,tensorrt-rtx")

# lint COMMAND OF CARGO...: each crate of the workspace that it compiles, and not the dependencies.
lint() { RUSTC_WORKSPACE_WRAPPER="$ROOT/scripts/lib/clippy.sh" "$@"; }

# build_tests: those of all crates, and the binary that they drive, in BINARY; the names and paths
# of their programs in PROGRAMS, where the unit tests have the name of their crate. A build of the
# binary alone would compile most dependencies once more: without those of the tests they have
# other features.
build_tests() {
    BINARY="${CARGO_TARGET_DIR:-$ROOT/target}/debug/duovec"
    PROGRAMS=$(lint cargo test --locked --quiet --no-run "${FEATURES[@]}" \
        --message-format json-render-diagnostics |
        "$PYTHON" -c '
import json, sys
for line in sys.stdin:
    built = json.loads(line)
    if built.get("executable") and built["profile"]["test"]:
        print(built["target"]["name"], built["executable"])')
}

# program_of NAME: the path of a test's program.
program_of() { sed -n "s/^$1 //p" <<<"$PROGRAMS"; }
