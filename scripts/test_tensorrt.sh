#!/usr/bin/env bash
# Every check of the TensorRT side that needs no GPU: style and tests of cpp/ under the sanitizers,
# both flavours in one binary, real plans built with the TensorRT-RTX library.
#
#   scripts/test_tensorrt.sh
set -euo pipefail

# shellcheck source=scripts/lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
# shellcheck source=scripts/lib/tensorrt.sh
. "$ROOT/scripts/lib/tensorrt.sh"
# shellcheck source=scripts/lib/standin.sh
. "$ROOT/scripts/lib/standin.sh"
answer_help "$@"
# shellcheck source=scripts/lib/steps.sh
. "$ROOT/scripts/lib/steps.sh"
# shellcheck source=scripts/lib/rust.sh
. "$ROOT/scripts/lib/rust.sh"
cd "$ROOT"

WORK=$(mktemp -d)
trap 'end_beside; rm -rf "$WORK"' EXIT

COMPILE=(c++ -std=c++20 -g1 -O1 -Wall -Wextra -Wpedantic -Werror -fvisibility=hidden -Icpp
    -isystem third_party/cuda/include -pthread)
FLAVOURS=(tensorrt tensorrt_10 rtx)
# Sources of a flavour, as build.rs has them, and the neutral ones that tests need: they name no
# type of TensorRT's, so all flavours' tests are linked with the same objects.
OF_FLAVOUR=(backend builder diagnostics engine library network session)
NEUTRAL=(cuda fusion layout profile progress)

# flavour NAME: HEADERS and ARGUMENTS that its sources are compiled with, LIBRARY that it opens,
# STANDINS as the folder of its stand-ins below that of all.
flavour() {
    STANDINS=.
    case $1 in
        tensorrt) HEADERS=tensorrt LIBRARY=libnvinfer.so.11 ARGUMENTS=() ;;
        tensorrt_10)
            HEADERS=tensorrt-10 LIBRARY=libnvinfer.so.10 STANDINS=10
            ARGUMENTS=(-Dnvinfer1=nvinfer1_10 -Dnvonnxparser=nvonnxparser_10)
            ;;
        rtx)
            HEADERS=tensorrt-rtx LIBRARY=libtensorrt_rtx.so.1
            ARGUMENTS=(-DDUOVEC_RTX=1 -Dnvinfer1=nvinfer1_rtx -Dnvonnxparser=nvonnxparser_rtx)
            ;;
    esac
    ARGUMENTS+=("-DDUOVEC_FLAVOUR=$1" -isystem "third_party/headers/$HEADERS")
}

# later COMMAND...: to be run by all_at_once, which runs as many commands side by side as there are
# cores and fails when one does.
later() {
    printf '%q ' "$@" >>"$WORK/commands"
    printf '\n' >>"$WORK/commands"
}

all_at_once() {
    local result=0
    xargs -d '\n' -n 1 -P "$(nproc)" bash -c <"$WORK/commands" || result=$?
    rm "$WORK/commands"
    return "$result"
}

# optimization SANITIZERS: quick to compile with ASan, which stops more mistakes then; warnings that
# need an optimizer come with TSan.
optimization() { if [ "$1" = thread ]; then echo -O1; else echo -O0; fi; }

# objects SANITIZERS FLAVOUR NAMES...: an object of each of cpp/NAME.cc, later. What is neutral has
# `neutral` as its flavour.
objects() {
    local folder="$WORK/$1-$2" name flags=("-fsanitize=$1" -fno-sanitize-recover=all)
    if [ "$2" != neutral ]; then
        flavour "$2"
        flags+=("${ARGUMENTS[@]}" "-DDUOVEC_TEST_STANDINS=\"$WORK/standins-$1/$STANDINS\""
            "-DDUOVEC_TEST_STUBS=\"$WORK/stubs-$2\"")
        flags+=("$(optimization "$1")")
    fi
    mkdir -p "$folder"
    for name in "${@:3}"; do
        later "${COMPILE[@]}" "${flags[@]}" -c "cpp/$name.cc" -o "$folder/${name//\//-}.o"
    done
}

# program SANITIZERS FLAVOUR NAME PARTS... -- FLAGS...: links objects, those of no flavour too, and
# runs the program, later.
program() {
    local folder="$WORK/$1-$2" neutral="$WORK/$1-neutral" sanitizers=$1 name=$3 file parts=()
    shift 3
    while [ "$1" != -- ]; do
        file="${1//\//-}.o"
        if [ -e "$folder/$file" ]; then parts+=("$folder/$file"); else parts+=("$neutral/$file"); fi
        shift
    done
    shift
    # The inner shell expands them.
    # shellcheck disable=SC2016
    later bash -c '"${@:2}" -o "$1" -ldl && "$1"' - "$folder/$name" c++ -pthread \
        "-fsanitize=$sanitizers" "$@" "${parts[@]}"
}

# version_number HEADERS: as getInferLibVersion() gives it, without the patch.
version_number() {
    awk '/#define TRT_MAJOR_/ { major = $3 } /#define TRT_MINOR_/ { minor = $3 }
        END { print major * 10000 + minor * 100 }' "$1/NvInferVersion.h"
}

# make_stubs FOLDER FILE NUMBER: libraries that say they are of versions like NUMBER.
make_stubs() {
    local folder=$1 file=$2 number=$3
    mkdir -p "$folder/same" "$folder/later_major" "$folder/foreign"
    c++ -shared -fPIC "-DSTUB_VERSION=$number" cpp/testing/stub_library.cc \
        -o "$folder/same/$file" &&
        c++ -shared -fPIC "-DSTUB_VERSION=$((number + 10000))" cpp/testing/stub_library.cc \
            -o "$folder/later_major/$file" &&
        c++ -shared -fPIC cpp/testing/stub_library.cc -o "$folder/foreign/$file"
}

# Our sources against every release whose headers are here; all tables must have grown only. The
# newest release of each major version is compiled by build.rs, with the same warnings as errors.
# What cannot be fetched is taken from the folders in DUOVEC_TEST_HEADERS (oldest first, with
# colons).
compile_with_all_headers() {
    local folder name oldest_11=third_party/headers/tensorrt-11.0 previous=()
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
        for name in "${OF_FLAVOUR[@]}"; do
            later "${COMPILE[@]}" -fsyntax-only -DDUOVEC_FLAVOUR=tensorrt -isystem "$folder" \
                "cpp/$name.cc"
        done
        say "headers: $(basename "$folder")"
    done
    all_at_once
}

# What names no type of TensorRT's; the tests of flavours are linked with the same objects.
pure_tests() {
    local both=address,undefined name
    objects $both neutral "${NEUTRAL[@]}" fusion_test layout_test profile_test progress_test
    all_at_once || return
    for name in fusion layout profile progress; do
        program $both neutral ${name}_ $name ${name}_test --
    done
    all_at_once
}

# standin_tests SANITIZERS FLAVOURS...: the stand-ins and, on them, what each flavour opens, builds
# and runs.
standin_tests() {
    local sanitizers=$1 name
    shift
    make_standins "$WORK/standins-$sanitizers" "$*" "-fsanitize=$sanitizers" \
        "$(optimization "$sanitizers")" || return
    [ -e "$WORK/$sanitizers-neutral" ] || objects "$sanitizers" neutral "${NEUTRAL[@]}"
    for name in "$@"; do
        flavour "$name"
        make_stubs "$WORK/stubs-$name" "$LIBRARY" \
            "$(version_number "third_party/headers/$HEADERS")" || return
        objects "$sanitizers" "$name" builder diagnostics engine library network session \
            library_test diagnostics_test session_test builder_test
    done
    all_at_once || return
    for name in "$@"; do
        program "$sanitizers" "$name" library library diagnostics fusion library_test --
        program "$sanitizers" "$name" diagnostics_ diagnostics fusion diagnostics_test --
        program "$sanitizers" "$name" session_ cuda diagnostics engine fusion layout library \
            profile session session_test -- -Wl,--wrap=_Znwm \
            -Wl,--version-script=cpp/testing/own_symbols.map
        program "$sanitizers" "$name" builder_ builder cuda diagnostics engine fusion layout \
            library network profile progress session builder_test --
    done
    all_at_once
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
    step "tensorrt: c++: format" third_party/clang-format/clang-format --dry-run --Werror \
        cpp/*.h cpp/*.cc cpp/testing/*.h cpp/testing/*.cc
    step "tensorrt: c++: tests of the pure parts" pure_tests
    step "tensorrt: c++: all releases' headers" compile_with_all_headers
    step "tensorrt: c++: planted mistakes are caught" planted_mistakes
    step "tensorrt: c++: every flavour under ASan and UBSan" standin_tests address,undefined \
        "${FLAVOURS[@]}"
    # Threads meet in the same places with every major version of TensorRT.
    step "tensorrt: c++: both flavours under TSan" standin_tests thread tensorrt rtx
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

check_lints() {
    give_way
    step "tensorrt: clippy" run_clippy --all-targets "${FEATURES[@]}"
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
beside "tensorrt: clippy of all features" check_lints
beside "tensorrt: tests of Rust" run_programs
settle
say "all TensorRT tests passed in $SECONDS s"
