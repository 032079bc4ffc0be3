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
cd "$ROOT"

FEATURES=tensorrt,tensorrt-rtx
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
trap 'exit 130' INT TERM

step() {
    local name=$1 start=$SECONDS
    shift
    say "tensorrt: $name"
    "$@" || die "failed: tensorrt: $name"
    say "tensorrt: $name: $((SECONDS - start)) s"
}

COMPILE=(c++ -std=c++20 -g -O1 -Wall -Wextra -Wpedantic -Werror -fvisibility=hidden -Icpp
    -isystem third_party/cuda/include -pthread)
FLAVOURS=(tensorrt tensorrt_10 rtx)
# Sources of a flavour, as build.rs has them, and the neutral ones that tests need.
OF_FLAVOUR=(backend builder ceiling diagnostics engine library network session)
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

# objects FOLDER FLAGS... -- NAMES...: an object of each of cpp/NAME.cc in FOLDER, later.
objects() {
    local folder=$1 name flags=()
    shift
    while [ "$1" != -- ]; do
        flags+=("$1")
        shift
    done
    shift
    mkdir -p "$folder"
    for name in "$@"; do
        later "${COMPILE[@]}" "${flags[@]}" -c "cpp/$name.cc" -o "$folder/${name//\//-}.o"
    done
}

# program FOLDER SANITIZERS NAME PARTS... -- FLAGS...: links objects and runs the program, later.
program() {
    local folder=$1 sanitizers=$2 name=$3 parts=()
    shift 3
    while [ "$1" != -- ]; do
        parts+=("$folder/${1//\//-}.o")
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

# Our sources against every release whose headers are here; all tables must have grown only. What
# cannot be fetched is taken from the folders in DUOVEC_TEST_HEADERS (oldest first, with colons).
compile_with_all_headers() {
    local folder name release previous=() folders=(third_party/headers/tensorrt-11.0
        third_party/headers/tensorrt third_party/headers/tensorrt-10)
    if [ -n "${DUOVEC_TEST_HEADERS:-}" ]; then
        mapfile -t -d : previous < <(printf %s "$DUOVEC_TEST_HEADERS")
    else
        say "left out: TensorRT 10 before 10.16 (headers in DUOVEC_TEST_HEADERS are compiled too)"
    fi
    "$PYTHON" tests/tensorrt/class_tables.py "${folders[0]}" "${folders[1]}" || return
    for folder in "${previous[@]}"; do
        "$PYTHON" tests/tensorrt/class_tables.py "$folder" third_party/headers/tensorrt-10 || return
    done
    for folder in "${folders[@]}" "${previous[@]}"; do
        release=$(basename "$folder")
        for name in "${OF_FLAVOUR[@]}"; do
            later "${COMPILE[@]}" -fsyntax-only -DDUOVEC_FLAVOUR=tensorrt -isystem "$folder" \
                "cpp/$name.cc"
        done
        say "headers: $release"
    done
    all_at_once
}

pure_tests() {
    local both=address,undefined
    objects "$WORK/pure" "-fsanitize=$both" -fno-sanitize-recover=all -- \
        fusion layout profile progress fusion_test layout_test profile_test progress_test
    all_at_once || return
    program "$WORK/pure" $both fusion_ fusion profile fusion_test --
    program "$WORK/pure" $both layout_ layout layout_test --
    program "$WORK/pure" $both profile_ profile profile_test --
    program "$WORK/pure" $both progress_ progress progress_test --
    all_at_once
}

# standin_tests SANITIZERS FLAVOURS...: the stand-ins and, on them, what each flavour opens, builds
# and runs.
standin_tests() {
    local sanitizers=$1 name folder libraries="$WORK/standins-$1"
    local flags=("-fsanitize=$sanitizers" -fno-sanitize-recover=all)
    shift
    make_standins "$libraries" "-fsanitize=$sanitizers" || return
    for name in "$@"; do
        flavour "$name"
        make_stubs "$WORK/stubs-$name" "$LIBRARY" \
            "$(version_number "third_party/headers/$HEADERS")" || return
        objects "$WORK/$sanitizers-$name" "${flags[@]}" "${ARGUMENTS[@]}" \
            "-DDUOVEC_TEST_STANDINS=\"$libraries/$STANDINS\"" \
            "-DDUOVEC_TEST_STUBS=\"$WORK/stubs-$name\"" -- builder diagnostics engine library \
            network session "${NEUTRAL[@]}" library_test diagnostics_test session_test \
            builder_test testing/standin_test testing/standin_contract_test
    done
    all_at_once || return
    for name in "$@"; do
        folder="$WORK/$sanitizers-$name"
        program "$folder" "$sanitizers" standin testing/standin_test --
        program "$folder" "$sanitizers" contract testing/standin_contract_test --
        program "$folder" "$sanitizers" library library diagnostics library_test --
        program "$folder" "$sanitizers" diagnostics_ diagnostics diagnostics_test --
        program "$folder" "$sanitizers" session_ cuda diagnostics engine layout library profile \
            session session_test -- -Wl,--wrap=_Znwm \
            -Wl,--version-script=cpp/testing/own_symbols.map
        program "$folder" "$sanitizers" builder_ builder cuda diagnostics engine fusion layout \
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

# With the tests, whose dependencies have other features than those of the binary alone.
build_binary() { cargo test --locked --quiet --no-run --features "$FEATURES"; }

# The binary must start on a machine without any of NVIDIA's libraries.
nothing_is_linked() {
    local binary="${CARGO_TARGET_DIR:-target}/debug/duovec"
    ! ldd "$binary" | grep -iE 'nvinfer|nvonnx|tensorrt|cuda' &&
        "$binary" build-engine --help >/dev/null
}

make_packages() { "$PYTHON" tests/tensorrt/make_packages.py "$WORK/packages"; }

need_tools
step "fetch headers and libraries" ensure_tensorrt
if [ -z "${PYTHON:-}" ]; then
    need_cache
    step "set up Python" ensure_venv scripts/requirements.txt scripts/requirements-test.txt
fi
if [ -z "${DUOVEC_PACKAGE:-}" ]; then
    step "make the default package" ensure_package
    export DUOVEC_PACKAGE="$ROOT/engines/$PACKAGE_NAME"
fi
step "add the default package's fp16 graph" ensure_fp16 "$DUOVEC_PACKAGE"
step "c++: format" third_party/clang-format/clang-format --dry-run --Werror \
    cpp/*.h cpp/*.cc cpp/testing/*.h cpp/testing/*.cc
step "c++: tests of the pure parts" pure_tests
step "c++: all releases' headers" compile_with_all_headers
step "c++: every flavour under ASan and UBSan" standin_tests address,undefined \
    "${FLAVOURS[@]}"
step "c++: both flavours under TSan" standin_tests thread tensorrt rtx
step "make the stand-in libraries" make_standins "$WORK/standins"
step "c++: planted mistakes are caught" planted_mistakes
step "rust: clippy" \
    cargo clippy --locked --quiet --all-targets --features "$FEATURES" -- -D warnings
# One test, so that the dependencies have the features that they were checked with before.
step "rust: clippy, data-centre flavour alone" \
    cargo clippy --locked --quiet --no-default-features --features tensorrt \
    --lib --bins --test tidy -- -D warnings
step "build the binary with all flavours" build_binary
step "flavours share nothing" flavours_share_nothing
step "nothing of NVIDIA's is linked" nothing_is_linked
step "make random packages" make_packages
export DUOVEC_TEST_TENSORRT_PACKAGES="$WORK/packages"
export DUOVEC_TEST_TENSORRT_RTX_LIBRARY_DIR="$ROOT/third_party/tensorrt-rtx/lib"
export DUOVEC_TEST_CUDA_LIBRARY_DIR="$ROOT/third_party/cuda/lib"
export DUOVEC_TEST_CUDA_12_LIBRARY_DIR="$ROOT/third_party/cuda-12/lib"
step "rust: unit tests" cargo test --locked --features "$FEATURES" --lib -- engine:: package::
export DUOVEC_TEST_STANDIN_DIR="$WORK/standins"
step "the server on stand-ins" cargo test --locked --features "$FEATURES" --test tensorrt_serve
step "real builds" cargo test --locked --features "$FEATURES" --test tensorrt_build
say "all TensorRT tests passed in $SECONDS s"
