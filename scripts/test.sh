#!/usr/bin/env bash
# Sets up all that is needed and runs every check and test, from style to the real binary.
#
#   scripts/test.sh
set -euo pipefail

# shellcheck source=scripts/lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
answer_help "$@"
cd "$ROOT"

# step NAME COMMAND...: prints how long each took, so that a slow one is seen.
step() {
    local name=$1 start=$SECONDS
    shift
    say "$name"
    "$@" || die "failed: $name"
    say "$name: $((SECONDS - start)) s"
}

# Licences, sources and bans of dependencies; advisories only when their data can be had.
check_dependencies() {
    if ! cargo deny --version >/dev/null 2>&1; then
        say "dependencies: skipped, cargo-deny is not installed"
        return
    fi
    cargo deny --offline check licenses bans sources || return
    if cargo deny fetch db; then
        cargo deny --offline check advisories
    else
        say "advisories: skipped, their data cannot be had"
    fi
}

need_tools
need_cache
step "set up Python" ensure_venv scripts/requirements.txt scripts/requirements-test.txt
step "make the default package" ensure_package

step "rust: format" cargo fmt --check
step "rust: clippy" cargo clippy --locked --quiet --all-targets -- -D warnings
step "rust: clippy without engines" \
    cargo clippy --locked --quiet --no-default-features -- -D warnings
step "dependencies" check_dependencies
step "python: style" "$PYTHON" -m ruff check scripts tests clients examples deploy
step "python: format" "$PYTHON" -m ruff format --check scripts tests clients examples deploy
step "python: types of the client" "$PYTHON" -m mypy --config-file clients/python/pyproject.toml \
    clients/python/src clients/python/tests/*.py
step "shell: mistakes" "$VENV/bin/shellcheck" -x scripts/*.sh scripts/lib/*.sh .ci/run

export DUOVEC_PACKAGE="$ROOT/engines/$PACKAGE_NAME"
step "rust: unit, property, simulation, tidy, api, golden, process" cargo test --locked
step "python: package scripts" "$PYTHON" -m pytest -q scripts/tests scripts/research/tests
step "build the release binary" ensure_binary
step "check the default package" "$BINARY" check
export DUOVEC_TEST_BINARY="$BINARY"
step "set up a browser" ensure_browser
step "clients against the real binary" "$PYTHON" -m pytest -q -rPs tests/clients
step "the Python client against the real binary" "$PYTHON" -m pytest -q -rs clients/python/tests
step "a fleet: proxies, Prometheus, Kubernetes" scripts/test_fleet.sh
step "the benchmark over HTTP, small" scripts/bench_http.sh --small
step "build the conformance program" cargo build --locked --quiet --example conformance
export DUOVEC_TEST_CONFORMANCE="${CARGO_TARGET_DIR:-$ROOT/target}/debug/examples/conformance"
step "conformance against other runtimes" "$PYTHON" -m pytest -q -rP tests/conformance
step "tensorrt" env PYTHON="$PYTHON" scripts/test_tensorrt.sh
say "all tests passed in $SECONDS s"
