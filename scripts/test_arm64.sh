#!/usr/bin/env bash
# Runs on arm64, under QEMU's emulator of programs: the unit tests of all crates, and the server on
# the fake engine, whose answers must be those of the server for this machine's processor. All is
# cross-compiled. Compiler and emulator are Debian's, unpacked in the cache folder where they are
# not installed.
#
#   scripts/test_arm64.sh
#
# DUOVEC_TEST_BINARY names the server for this machine if it is built already.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
. "$ROOT/scripts/lib/programs.sh"
answer_help "$@"
. "$ROOT/scripts/lib/steps.sh"
cd "$ROOT"

TARGET=aarch64-unknown-linux-gnu
# These tests would take ten times as long as all others: they simulate schedules, try orders of
# threads, or read without end. No processor does that in another way. The first starts its own
# program, which this machine cannot run outside of the emulator.
SKIPPED=(allocator::tests::the_environment batch::plan::tests::every_item state::lanes
    scheduler::interleavings corpus::input::tests::a_line_that corpus::input::tests::a_quote_that
    corpus::window http::body http::connection::gate::tests::framing
    http::connection::http_2::tests::a_socket http::connection::http_2::tests::heads_that
    service::chunking::tests::chunks_alone tokenize::openai worker::pool::tests::every)
# Of each property, for the same reason.
export PROPTEST_CASES=8

# ensure_target: Rust's own library for arm64.
ensure_target() {
    [ ! -d "$(rustc --print target-libdir --target "$TARGET")" ] || return 0
    command -v rustup >/dev/null ||
        die "Rust has no library for $TARGET, and there is no rustup to fetch it: install the" \
            "library in the way that Rust was installed, or install rustup, and try again"
    # It comes from Rust's own server, which not every network reaches.
    rustup target add "$TARGET" && return
    say "arm64: skipped, rustup cannot fetch Rust's library for $TARGET"
    exit
}

# build: the unit tests and the server. `golden` is there because cargo builds the program for tests
# in tests/ only, and a build without tests would compile most dependencies once more, with other
# features. What runs once need not be optimized.
build() {
    local libc
    libc=$(realpath "$(aarch64-linux-gnu-gcc -print-file-name=libc.so.6)")
    IN_EMULATOR=("$EMULATOR" -L "${libc%/lib/*}")
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="${IN_EMULATOR[*]}"
    export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=0
    TESTS=(cargo test --locked --quiet --target "$TARGET" --lib)
    "${TESTS[@]}" --test golden --no-run
}

run_unit_tests() { "${TESTS[@]}" -- "${SKIPPED[@]/#/--skip=}"; }

# compare_servers: DUOVEC_TEST_ARM64 is a program that starts the server in the emulator.
compare_servers() {
    local folder="${CARGO_TARGET_DIR:-$ROOT/target}/$TARGET/debug"
    export DUOVEC_TEST_ARM64="$folder/duovec-emulated"
    printf '#!/bin/sh\nexec %s %s "$@"\n' "${IN_EMULATOR[*]}" "$folder/duovec" \
        >"$DUOVEC_TEST_ARM64"
    chmod +x "$DUOVEC_TEST_ARM64"
    "$PYTHON" -m pytest -q tests/arm64
}

if [ "$(uname -m)" = aarch64 ]; then
    say "arm64: all other tests were for this machine's processor, so there is nothing to emulate"
    exit
fi
prepare_load
ensure_target
ensure_arm64 ||
    die "install a compiler for arm64 and QEMU (Debian's packages g++-aarch64-linux-gnu and" \
        "qemu-user-static) and try again"
step "arm64: build the unit tests and the server" build
step "arm64: unit tests" run_unit_tests
step "arm64: the server beside the one for this machine" compare_servers
