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

# flavour_arguments NAME: what a source of the flavour is compiled with, in ARGUMENTS.
flavour_arguments() {
    case $1 in
        tensorrt) ARGUMENTS=(-DDUOVEC_FLAVOUR=tensorrt -isystem third_party/headers/tensorrt) ;;
        rtx)
            ARGUMENTS=(-DDUOVEC_FLAVOUR=rtx -DDUOVEC_RTX=1 -Dnvinfer1=nvinfer1_rtx
                -Dnvonnxparser=nvonnxparser_rtx -isystem third_party/headers/tensorrt-rtx)
            ;;
    esac
}

# version_number HEADERS: as getInferLibVersion() gives it, without the patch.
version_number() {
    awk '/#define TRT_MAJOR_/ { major = $3 } /#define TRT_MINOR_/ { minor = $3 }
        END { print major * 10000 + minor * 100 }' "$1/NvInferVersion.h"
}

# make_stubs FOLDER FILE NUMBER: libraries that say they are of versions around NUMBER.
make_stubs() {
    local folder=$1 file=$2 number=$3 name
    local -A versions=([same]=$number [later_minor]=$((number + 100))
        [earlier_minor]=$((number - 100)) [later_major]=$((number + 10000)))
    for name in "${!versions[@]}"; do
        mkdir -p "$folder/$name"
        c++ -shared -fPIC "-DSTUB_VERSION=${versions[$name]}" cpp/testing/stub_library.cc \
            -o "$folder/$name/$file" || return
    done
    mkdir -p "$folder/foreign"
    c++ -shared -fPIC cpp/testing/stub_library.cc -o "$folder/foreign/$file"
}

# run_test SANITIZERS NAME ARGUMENTS...: compiles a test program and runs it.
run_test() {
    local sanitizers=$1 name=$2
    shift 2
    "${COMPILE[@]}" "-fsanitize=$sanitizers" -fno-sanitize-recover=all "$@" -o "$WORK/$name" -ldl &&
        "$WORK/$name"
}

pure_tests() {
    local both=address,undefined
    run_test $both profile cpp/profile.cc cpp/profile_test.cc &&
        run_test $both layout cpp/layout.cc cpp/layout_test.cc &&
        run_test $both fusion cpp/fusion.cc cpp/profile.cc cpp/fusion_test.cc &&
        run_test $both progress cpp/progress.cc cpp/progress_test.cc
}

# flavour_tests NAME FILE HEADERS
flavour_tests() {
    local stubs="$WORK/stubs-$1" both=address,undefined
    flavour_arguments "$1"
    make_stubs "$stubs" "$2" "$(version_number "third_party/headers/$3")" || return
    run_test $both "library-$1" "${ARGUMENTS[@]}" "-DDUOVEC_TEST_STUBS=\"$stubs\"" \
        cpp/library.cc cpp/diagnostics.cc cpp/library_test.cc &&
        run_test $both "diagnostics-$1" "${ARGUMENTS[@]}" \
            cpp/diagnostics.cc cpp/diagnostics_test.cc &&
        run_test thread "diagnostics-threads-$1" "${ARGUMENTS[@]}" \
            cpp/diagnostics.cc cpp/diagnostics_test.cc
}

# standin_tests SANITIZERS: the stand-ins, then engine and session of each flavour on them.
standin_tests() {
    local sanitizers=$1 name
    local libraries="$WORK/standins-$1"
    make_standins "$libraries" "-fsanitize=$sanitizers" || return
    for name in tensorrt rtx; do
        flavour_arguments "$name"
        ARGUMENTS+=("-DDUOVEC_TEST_STANDINS=\"$libraries\"")
        run_test "$sanitizers" "standin-$name" "${ARGUMENTS[@]}" cpp/testing/standin_test.cc &&
            run_test "$sanitizers" "contract-$name" "${ARGUMENTS[@]}" \
                cpp/testing/standin_contract_test.cc &&
            run_test "$sanitizers" "session-$name" "${ARGUMENTS[@]}" -Wl,--wrap=_Znwm \
                -Wl,--version-script=cpp/testing/own_symbols.map cpp/cuda.cc \
                cpp/diagnostics.cc cpp/engine.cc cpp/layout.cc cpp/library.cc cpp/profile.cc \
                cpp/session.cc cpp/session_test.cc &&
            run_test "$sanitizers" "builder-$name" "${ARGUMENTS[@]}" cpp/builder.cc cpp/cuda.cc \
                cpp/diagnostics.cc cpp/engine.cc cpp/fusion.cc cpp/layout.cc cpp/library.cc \
                cpp/network.cc cpp/profile.cc cpp/progress.cc cpp/session.cc \
                cpp/builder_test.cc || return
    done
}

planted_mistakes() {
    "$PYTHON" tests/tensorrt/planted_mistakes.py "$WORK/standins" "$WORK/mistakes"
}

# archive NAME: of the last build.
archive() {
    local -a found
    mapfile -t found < <(ls -t "${CARGO_TARGET_DIR:-target}/$PROFILE"/build/duovec-*/out/"$1")
    printf '%s\n' "${found[0]}"
}

# What one flavour defines must not be found in the other: the linker would merge it.
flavours_share_nothing() {
    nm -C "$(archive libduovec_tensorrt.a)" >"$WORK/tensorrt.symbols" &&
        nm -C "$(archive libduovec_rtx.a)" >"$WORK/rtx.symbols" || return
    grep -q 'nvinfer1::' "$WORK/tensorrt.symbols" || return
    grep -q 'nvinfer1_rtx::' "$WORK/rtx.symbols" || return
    ! grep -E 'nvinfer1_rtx|nvonnxparser_rtx|duovec::rtx::' "$WORK/tensorrt.symbols" &&
        ! grep -E 'nvinfer1::|nvonnxparser::|duovec::tensorrt::' "$WORK/rtx.symbols"
}

# The binary must start on a machine without any of NVIDIA's libraries.
nothing_is_linked() {
    ! ldd "$BINARY" | grep -iE 'nvinfer|nvonnx|tensorrt|cuda' &&
        "$BINARY" build-engine --help >/dev/null
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
step "c++: tests of the data-centre flavour" flavour_tests tensorrt libnvinfer.so.11 tensorrt
step "c++: tests of the RTX flavour" flavour_tests rtx libtensorrt_rtx.so.1 tensorrt-rtx
step "c++: engine and session under ASan and UBSan" standin_tests address,undefined
step "c++: engine and session under TSan" standin_tests thread
step "make the stand-in libraries" make_standins "$WORK/standins"
step "c++: planted mistakes are caught" planted_mistakes
step "rust: clippy" \
    cargo clippy --locked --quiet --all-targets --features "$FEATURES" -- -D warnings
step "rust: clippy, data-centre flavour alone" \
    cargo clippy --locked --quiet --no-default-features --features tensorrt -- -D warnings
step "build the binary with both flavours" ensure_tensorrt_binary
step "flavours share nothing" flavours_share_nothing
step "nothing of NVIDIA's is linked" nothing_is_linked
step "make random packages" make_packages
export DUOVEC_TEST_TENSORRT_PACKAGES="$WORK/packages"
export DUOVEC_TEST_TENSORRT_RTX_LIBRARY_DIR="$ROOT/third_party/tensorrt-rtx/lib"
export DUOVEC_TEST_CUDA_LIBRARY_DIR="$ROOT/third_party/cuda/lib"
step "rust: unit tests" cargo test --locked --features "$FEATURES" --lib -- engine:: package::
export DUOVEC_TEST_STANDIN_DIR="$WORK/standins"
step "the server on stand-ins" cargo test --locked --features "$FEATURES" --test tensorrt_serve
step "real builds" cargo test --locked --features "$FEATURES" --test tensorrt_build
say "all TensorRT tests passed in $SECONDS s"
