#!/usr/bin/env bash
# Every check of the TensorRT side that needs no GPU: style and tests of cpp/, with each sanitizer
# where it can find something, both flavours in one binary, real plans built with the TensorRT-RTX
# library.
#
#   scripts/test_tensorrt.sh
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
. "$ROOT/scripts/lib/tensorrt.sh"
. "$ROOT/scripts/lib/standin.sh"
answer_help "$@"
. "$ROOT/scripts/lib/steps.sh"
. "$ROOT/scripts/lib/rust.sh"
cd "$ROOT"

WORK=$(mktemp -d)
trap 'end_beside; rm -rf "$WORK"' EXIT

COMPILE=(c++ -std=c++20 -g1 -Wall -Wextra -Wpedantic -Werror -fvisibility=hidden -Icpp
    -isystem third_party/cuda/include -pthread)
FLAVOURS=(tensorrt tensorrt_10 rtx)

# tests STANDINS FLAVOUR FLAGS FILES...: runs tests on the stand-ins in that folder. The program is
# one translation unit, the sources of the flavour and the tests', since NVIDIA's headers take most
# of the time.
tests() {
    local flags program="$WORK/tests-$2"
    read -ra flags <<<"$3"
    flavour_of "$2"
    printf '#include "%s.cc"\n' cuda layout flavour "${@:4}" >"$program.cc"
    "${COMPILE[@]}" "${DEFINES[@]}" "-DDUOVEC_FLAVOUR=$2" -isystem "third_party/headers/$HEADERS" \
        "${flags[@]}" -fno-sanitize-recover=all "$program.cc" \
        -Wl,--wrap=_Znwm -Wl,--version-script=cpp/testing/own_symbols.map -ldl -o "$program" &&
        DUOVEC_TEST_STANDIN_DIR=$1 "$program"
}

# Our sources against every release whose headers are here; all tables must have grown only. The
# newest release of each major version is compiled by build.rs, with the same warnings as errors.
# What cannot be fetched is taken from the folders in DUOVEC_TEST_HEADERS (oldest first, with
# colons).
compile_with_all_headers() {
    local folder oldest_11=third_party/headers/tensorrt-11.0 previous=()
    if [ -n "${DUOVEC_TEST_HEADERS:-}" ]; then
        mapfile -t -d : previous < <(printf %s "$DUOVEC_TEST_HEADERS")
    else
        say "left out: TensorRT 10 before 10.16 (headers in DUOVEC_TEST_HEADERS are compiled too)"
    fi
    "$PYTHON" tests/tensorrt/class_tables.py "$oldest_11" third_party/headers/tensorrt || return
    for folder in "${previous[@]}"; do
        "$PYTHON" tests/tensorrt/class_tables.py "$folder" third_party/headers/tensorrt-10 || return
    done
    for folder in "$oldest_11" "${previous[@]}"; do
        "${COMPILE[@]}" -fsyntax-only -DDUOVEC_FLAVOUR=tensorrt -isystem "$folder" \
            cpp/flavour.cc || return
        say "headers: $(basename "$folder")"
    done
}

# What sessions do is the same in all flavours, and TensorRT-RTX has code of its own besides.
test_memory() {
    tests "$WORK/standins" rtx "-O0 -fsanitize=address,undefined" fusion_test layout_test \
        profile_test progress_test diagnostics_test session_test builder_test library_test
}

# What the data-centre flavour has of its own: versions, flags and caches of builds. TensorRT 11
# builds in the tests of the server.
test_tensorrt_10() {
    tests "$WORK/standins/10" tensorrt_10 "-O0 -fsanitize=address,undefined" builder_test \
        library_test
}

# Threads meet in sessions and in the log. Warnings that need an optimizer come from here.
test_threads() {
    make_standins "$WORK/standins-thread" tensorrt -fsanitize=thread &&
        tests "$WORK/standins-thread" tensorrt "-O1 -fsanitize=thread" diagnostics_test \
            session_test library_test
}

planted_mistakes() {
    "$PYTHON" tests/tensorrt/planted_mistakes.py "$WORK/standins" "$WORK/mistakes"
}

# archive NAME: of the last build.
archive() {
    local -a found
    mapfile -t found < <(ls -t "${CARGO_TARGET_DIR:-target}"/debug/build/duovec-*/out/"$1")
    printf '%s\n' "${found[0]}"
}

# What one flavour defines must not be found in another: the linker would merge it.
flavours_share_nothing() {
    local name
    for name in "${FLAVOURS[@]}"; do
        nm -C "$(archive "libduovec_$name.a")" >"$WORK/$name.symbols" || return
    done
    grep -q 'nvinfer1::' "$WORK/tensorrt.symbols" || return
    grep -q 'nvinfer1_10::' "$WORK/tensorrt_10.symbols" || return
    grep -q 'nvinfer1_rtx::' "$WORK/rtx.symbols" || return
    ! grep -E '_(rtx|10)::|duovec::rtx::' "$WORK/tensorrt.symbols" &&
        ! grep -E '(nvinfer1|nvonnxparser|tensorrt|rtx)::' "$WORK/tensorrt_10.symbols" &&
        ! grep -E '(nvinfer1|nvonnxparser|tensorrt|_10)::' "$WORK/rtx.symbols"
}

# The binary must start on a machine without any of NVIDIA's libraries.
nothing_is_linked() {
    ! ldd "$BINARY" | grep -iE 'nvinfer|nvonnx|tensorrt|cuda' &&
        "$BINARY" build-engine --help >/dev/null
}

# Before all else, since the server's tests wait for them; the compiler goes first nevertheless.
make_libraries() (
    give_way
    make_standins "$WORK/standins" "${FLAVOURS[*]}" &&
        make_gpu_standins "$WORK/standins/gpu" &&
        ln -sf ../libcudart.so.13 "$WORK/standins/gpu/" &&
        make_standin_driver "$WORK/standins/driver" "$WORK/standins"
)

make_packages() { "$PYTHON" tests/tensorrt/make_packages.py "$WORK/packages"; }

# What needs nothing of Rust's; it takes the time that the compiler and the tests of Rust leave.
test_cpp() {
    give_way
    step "tensorrt: c++: format" "$PYTHON" -c 'import clang_format; clang_format.clang_format()' \
        --dry-run --Werror cpp/*.h cpp/*.cc cpp/testing/*.h cpp/testing/*.cc
    step "tensorrt: c++: all releases' headers" compile_with_all_headers
    step "tensorrt: c++: memory, under ASan and UBSan" test_memory
    step "tensorrt: c++: TensorRT 10, under ASan and UBSan" test_tensorrt_10
    step "tensorrt: c++: threads, under TSan" test_threads
    step "tensorrt: c++: planted mistakes are caught" planted_mistakes
}

# run_programs: of the tests that need the stand-ins or the real library for builds.
run_programs() {
    step "tensorrt: the server on stand-ins" "$(program_of tensorrt_serve)"
    # What the major versions differ in; what a session does with CUDA is the same.
    step "tensorrt: the server on stand-ins of TensorRT 10" env \
        "DUOVEC_TEST_STANDIN_DIR=$WORK/standins/10" "$(program_of tensorrt_serve)" \
        both_flavours half_precision builds:: plans::
    step "tensorrt: real builds" "$(program_of tensorrt_build)"
}

need_tools
step "tensorrt: fetch headers and libraries" ensure_tensorrt
if [ -z "${PYTHON:-}" ]; then
    need_cache
    step "set up Python" ensure_venv scripts/requirements.txt scripts/requirements-test.txt
fi
if [ -z "${DUOVEC_PACKAGE:-}" ]; then
    step "make the default package" ensure_package
    export DUOVEC_PACKAGE="$ROOT/engines/$PACKAGE_NAME"
fi
step "add the default package's fp16 graph" ensure_fp16 "$DUOVEC_PACKAGE"
step "tensorrt: make the stand-in libraries" make_libraries
step "tensorrt: make random packages" make_packages
beside "tensorrt: c++" test_cpp
step "tensorrt: build the tests" build_tests
step "tensorrt: flavours share nothing" flavours_share_nothing
step "tensorrt: nothing of NVIDIA's is linked" nothing_is_linked
export DUOVEC_TEST_TENSORRT_PACKAGES="$WORK/packages"
export DUOVEC_TEST_TENSORRT_RTX_LIBRARY_DIR="$ROOT/third_party/tensorrt-rtx/lib"
export DUOVEC_TEST_CUDA_LIBRARY_DIR="$ROOT/third_party/cuda/lib"
export DUOVEC_TEST_CUDA_12_LIBRARY_DIR="$ROOT/third_party/cuda-12/lib"
export DUOVEC_TEST_STANDIN_DIR="$WORK/standins"
beside "tensorrt: tests of Rust" run_programs
settle
say "all TensorRT tests passed in $SECONDS s"
