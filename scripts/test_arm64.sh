#!/usr/bin/env bash
# Runs the server for arm64 on the fake engine, under QEMU's emulator of programs: its answers must
# be those of the server for this machine's processor. It is cross-compiled, and linted on the way:
# it is the server as users build it, without TensorRT. Compiler and emulator are Debian's, unpacked
# in the cache folder where they are not installed.
#
#   scripts/test_arm64.sh
#
# DUOVEC_TEST_BINARY names the server for this machine if it is built already.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
. "$ROOT/scripts/lib/programs.sh"
answer_help "$@"
. "$ROOT/scripts/lib/steps.sh"
. "$ROOT/scripts/lib/rust.sh"
cd "$ROOT"

TARGET=aarch64-unknown-linux-gnu

# skip WHY...: the lints alone, for this machine's processor.
skip() {
    say "arm64: skipped, $*"
    step "arm64: lint the server" lint cargo check --locked --quiet --bin duovec
    exit
}

# ensure_target: Rust's own library for arm64.
ensure_target() {
    [ ! -d "$(rustc --print target-libdir --target "$TARGET")" ] || return 0
    command -v rustup >/dev/null ||
        die "Rust has no library for $TARGET, and there is no rustup to fetch it: install the" \
            "library in the way that Rust was installed, or install rustup, and try again"
    # It comes from Rust's own server, which not every network reaches.
    rustup target add "$TARGET" && return
    skip "rustup cannot fetch Rust's library for $TARGET"
}

# build: what runs once need not be optimized.
build() {
    local -x CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    local -x CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=0
    lint cargo build --locked --quiet --target "$TARGET" --bin duovec
}

# compare_servers: DUOVEC_TEST_ARM64 is a program that starts the server in the emulator.
compare_servers() {
    local folder="${CARGO_TARGET_DIR:-$ROOT/target}/$TARGET/debug" libc
    libc=$(realpath "$(aarch64-linux-gnu-gcc -print-file-name=libc.so.6)")
    export DUOVEC_TEST_ARM64="$folder/duovec-emulated"
    printf '#!/bin/sh\nexec %s -L %s %s "$@"\n' "$EMULATOR" "${libc%/lib/*}" "$folder/duovec" \
        >"$DUOVEC_TEST_ARM64"
    chmod +x "$DUOVEC_TEST_ARM64"
    "$PYTHON" -m pytest -q tests/arm64
}

if [ "$(uname -m)" = aarch64 ]; then
    skip "all other tests were for this machine's processor, so there is nothing to emulate"
fi
prepare_load
ensure_target
ensure_arm64 ||
    die "install a compiler for arm64 and QEMU (Debian's packages g++-aarch64-linux-gnu and" \
        "qemu-user-static) and try again"
step "arm64: lint and build the server" build
step "arm64: the server beside the one for this machine" compare_servers
