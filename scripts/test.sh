#!/usr/bin/env bash
# Sets up all that is needed and runs every check and test, from style to the real binary:
#
#   scripts/test.sh [--quick]
#
# Steps that do not need each other run side by side; their output is in target/test-logs, and is
# shown whole when one fails. --quick is for the time between two edits: style, clippy and the tests
# in Rust and of the scripts. It says what it leaves out.
set -euo pipefail

# shellcheck source=scripts/lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
# shellcheck source=scripts/lib/tensorrt.sh
. "$ROOT/scripts/lib/tensorrt.sh"
answer_help "$@"
QUICK=
case "$*" in
    "") ;;
    --quick) QUICK=1 ;;
    *) die "usage: scripts/test.sh [--quick]" ;;
esac
# shellcheck source=scripts/lib/steps.sh
. "$ROOT/scripts/lib/steps.sh"
cd "$ROOT"

# One set of features for everything that runs, the same as in test_tensorrt.sh: another set has
# other features of proc-macro2, so nearly every dependency would be compiled once more.
FEATURES=(--features "tensorrt,tensorrt-rtx")

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

check_style() {
    "$PYTHON" -m ruff check scripts tests clients examples deploy || return
    "$PYTHON" -m ruff format --check scripts tests clients examples deploy || return
    "$PYTHON" -m mypy --config-file clients/python/pyproject.toml \
        clients/python/src clients/python/tests/*.py || return
    "$VENV/bin/shellcheck" -x scripts/*.sh scripts/lib/*.sh examples/ray/test.sh .ci/run \
        deploy/container/*.sh || return
    "$VENV/bin/hadolint" deploy/Dockerfile*
}

# build_tests: all of them, and the binary that they drive, in BINARY; lists the names and paths of
# their programs for run_tests. A build of the binary alone would compile most dependencies once
# more: without those of the tests they have other features.
build_tests() {
    BINARY="${CARGO_TARGET_DIR:-$ROOT/target}/debug/duovec"
    cargo test --locked --quiet --no-run "${FEATURES[@]}" --message-format json-render-diagnostics |
        "$PYTHON" -c '
import json, sys
for line in sys.stdin:
    built = json.loads(line)
    if built.get("executable") and built["profile"]["test"]:
        target = built["target"]
        name = target["name"] if target["kind"] == ["test"] else target["kind"][0]
        print(name, built["executable"])' >"$LOGS/programs"
}

# run_tests: two programs at a time, since much of their time is waiting.
run_tests() {
    local name program
    while read -r name program; do
        # test_tensorrt.sh makes what these need, and runs them.
        [[ $name != tensorrt_* ]] || continue
        settle 1
        beside "rust: $name" "$program"
    done <"$LOGS/programs"
    settle
}

test_clients() {
    step "clients against the real binary" "$PYTHON" -m pytest -q -rPs tests/clients
    step "the Python client against the real binary" \
        "$PYTHON" -m pytest -q -rs clients/python/tests
    step "a fleet: proxies, Prometheus, Kubernetes" scripts/test_fleet.sh
    step "a corpus on a Ray cluster" examples/ray/test.sh
}

test_load_and_conformance() {
    step "the benchmark over HTTP, small" scripts/bench_http.sh --small
    step "the same beside another server" "$PYTHON" -m pytest -q -rP tests/against
    step "conformance against other runtimes" "$PYTHON" -m pytest -q -rP tests/conformance
}

need_tools
need_cache
# Tests run beside the compiler, and some of them look at clocks: they go first.
cargo() { nice -n 10 cargo "$@"; }
step "set up Python" ensure_venv scripts/requirements.txt scripts/requirements-test.txt
step "make the default package" ensure_package
export DUOVEC_PACKAGE="$ROOT/engines/$PACKAGE_NAME"
step "fetch TensorRT's headers and libraries" ensure_tensorrt
beside "python and shell: style" check_style
beside "python: package scripts" "$PYTHON" -m pytest -q scripts/tests scripts/research/tests
step "rust: format" cargo fmt --check

if [ -n "$QUICK" ]; then
    step "rust: build the tests" build_tests
    beside "rust: unit, property, simulation, tidy, api, golden, process" run_tests
    step "rust: clippy" \
        cargo clippy --locked --quiet --all-targets "${FEATURES[@]}" -- -D warnings
    settle
    say "left out, and run by scripts/test.sh: clippy for other features, cargo-deny, the tests" \
        "with the whole binary (clients, fleet, load, conformance), C++ and plans of TensorRT"
    say "the quick tests passed in $SECONDS s"
    exit
fi

# It replaces the package, so it must not run beside tests that read it.
step "add the default package's fp16 graph" ensure_fp16 "$DUOVEC_PACKAGE"
step "set up a browser" ensure_browser
step "set up clients of Node" ensure_node_clients
# Its C++ runs beside the compiler here; its Rust finds everything built.
beside "tensorrt" env PYTHON="$PYTHON" scripts/test_tensorrt.sh
beside "dependencies" check_dependencies
step "rust: build the tests" build_tests
beside "rust: unit, property, simulation, tidy, api, golden, process" run_tests
step "check the default package" "$BINARY" check
export DUOVEC_TEST_BINARY="$BINARY"
export DUOVEC_TEST_CONFORMANCE="${CARGO_TARGET_DIR:-$ROOT/target}/debug/examples/conformance"
beside "clients" test_clients
beside "load and conformance" test_load_and_conformance
# With the features of TensorRT it is in test_tensorrt.sh.
step "rust: clippy, default features" \
    cargo clippy --locked --quiet --all-targets -- -D warnings
# One test, so that the dependencies have the features that they were checked with before.
step "rust: clippy without engines" \
    cargo clippy --locked --quiet --no-default-features --lib --bins --test tidy -- -D warnings
settle
say "all tests passed in $SECONDS s"
