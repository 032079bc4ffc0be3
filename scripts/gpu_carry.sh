#!/usr/bin/env bash
# Packs what scripts/gpu_check.sh needs on a bare machine without network into one archive: the
# binary without its symbols, the scripts, packages, libraries, the stand-in for TensorRT that runs
# on a GPU, and wrk when it is here. Prints the command for that machine.
#
#   scripts/gpu_carry.sh --out FILE.tar.gz [--binary FILE] [--package DIR]... [--library-dir DIR]
#       [--cuda-library-dir DIR] [--standins DIR]
#
# --standins names what scripts/gpu_standins.sh has built; without it that is built now.
set -euo pipefail
shopt -s nullglob

# shellcheck source=scripts/lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
# shellcheck source=scripts/lib/standin.sh
. "$ROOT/scripts/lib/standin.sh"
answer_help "$@"

OUT="" BINARY="$ROOT/target/release/duovec" LIBRARIES="" CUDA="" STANDINS="" PACKAGES=()
while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || die "$1 needs a value"
    case $1 in
        --out) OUT=$2 ;;
        --binary) BINARY=$2 ;;
        --package) PACKAGES+=("$2") ;;
        --library-dir) LIBRARIES=$2 ;;
        --cuda-library-dir) CUDA=$2 ;;
        --standins) STANDINS=$2 ;;
        *) die "unknown argument $1: see --help" ;;
    esac
    shift 2
done
[ -n "$OUT" ] || die "name the archive with --out"
[ -x "$BINARY" ] || die "$BINARY is not there: build it, or name another with --binary"
[ ${#PACKAGES[@]} -gt 0 ] || PACKAGES=("$ROOT/engines/$PACKAGE_NAME")
# One of the two suits the driver there.
CUDAS=("$CUDA")
[ -n "$CUDA" ] || CUDAS=("$ROOT/third_party/cuda/lib" "$ROOT/third_party/cuda-12/lib")

TREE=$(mktemp -d)
trap 'rm -rf "$TREE" "$OUT.unfinished"' EXIT
trap 'exit 130' INT TERM
: >"$OUT.unfinished" || die "cannot write $OUT"

# into FOLDER FILES...: copies them to that folder of the tree.
into() {
    local folder="$TREE/$1"
    shift
    mkdir -p "$folder"
    cp -rL "$@" "$folder/" || die "cannot copy to $folder"
}

# carry_libraries: the flavours have files of different names; the folder may hold both.
carry_libraries() {
    local tensorrt=("$LIBRARIES"/{libnvinfer,libnvonnxparser}*.so.*)
    local rtx=("$LIBRARIES"/libtensorrt_*.so.*)
    [ ${#tensorrt[@]} -gt 0 ] || [ ${#rtx[@]} -gt 0 ] ||
        die "--library-dir: $LIBRARIES has neither libnvinfer.so.* nor libtensorrt_rtx.so.*"
    # TensorRT may look for a CUDA runtime beside itself, and nowhere else on a bare machine.
    [ ${#tensorrt[@]} = 0 ] ||
        into third_party/tensorrt/lib "${tensorrt[@]}" "$LIBRARIES"/libcudart.so.*
    [ ${#rtx[@]} = 0 ] || into third_party/tensorrt-rtx/lib "${rtx[@]}"
}

# carry_wrk: with the one library that a bare machine lacks.
carry_wrk() {
    local wrk library
    wrk=$(command -v wrk) || return 0
    into tools/lib "$wrk"
    library=$(ldd "$wrk" | awk '/libluajit/ { print $3 }')
    [ -z "$library" ] || into tools/lib "$library"
    cat >"$TREE/tools/wrk" <<'RUN'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH="$here/lib" exec "$here/lib/wrk" "$@"
RUN
    chmod +x "$TREE/tools/wrk"
}

mkdir -p "$TREE/target/release"
strip -o "$TREE/target/release/duovec" "$BINARY" 2>/dev/null ||
    cp "$BINARY" "$TREE/target/release/duovec"
into scripts "$ROOT"/scripts/gpu_check.sh "$ROOT"/scripts/{gpu_check,load,debian_texts} \
    "$ROOT"/scripts/default_package
into tests/golden "$ROOT/tests/golden/$PACKAGE_NAME.json"
into tests/fixtures "$ROOT/tests/fixtures/tiny"
into tests/clients "$ROOT/tests/clients/server.py"
for package in "${PACKAGES[@]}"; do
    [ -e "$package/manifest.json" ] || die "$package is no package: it has no manifest.json"
    into engines "$package"
done
[ -z "$LIBRARIES" ] || carry_libraries
for folder in "${CUDAS[@]}"; do
    [ ! -d "$folder" ] || into third_party/cuda/lib "$folder"/*.so.*
done
if [ -n "$STANDINS" ]; then
    into third_party/standins "$STANDINS"/*.so.*
elif [ -e "$ROOT/third_party/headers/tensorrt" ]; then
    (cd "$ROOT" && make_gpu_standins "$TREE/third_party/standins") ||
        die "the stand-ins cannot be built; the reason stands above"
else
    say "left out: the stand-in for TensorRT, since scripts/fetch_tensorrt.sh did not run here"
fi
carry_wrk
find "$TREE" -name __pycache__ -prune -exec rm -rf {} +

tar -C "$TREE" --sort=name -czf "$OUT.unfinished" . || die "cannot write $OUT"
mv "$OUT.unfinished" "$OUT"
say "carry $OUT, unpack it with tar -xzf in an empty folder, and run there:"
cd "$TREE"
printf 'scripts/gpu_check.sh'
printf " --package '%s'" engines/*
echo
