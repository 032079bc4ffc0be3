#!/usr/bin/env bash
# Builds a TensorRT plan from a package's ONNX graph and adds it to the package:
#
#     scripts/build_engine.sh PACKAGE [--flavour tensorrt|tensorrt-rtx] [--profiles …] …
#
# Everything behind PACKAGE goes to `duovec build-engine`; see its --help. Fetches headers and the
# TensorRT-RTX libraries once. The data-centre flavour takes an installed TensorRT and its GPU.
set -euo pipefail

# shellcheck source=scripts/lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
# shellcheck source=scripts/lib/tensorrt.sh
. "$ROOT/scripts/lib/tensorrt.sh"

answer_help "${1:-}"
case "${1:-}" in
    "" | -*) die "usage: scripts/build_engine.sh PACKAGE [--flavour …] [--profiles …] …" ;;
esac
[ -e "$1/manifest.json" ] || die "$1 is not a package: there is no manifest.json in it"

need_tools
# TensorRT computes in the types of the graph, and the default package's are f32.
if [ "$(basename "$1")" = "$PACKAGE_NAME" ] && [ ! -e "$1/model.fp16.onnx" ]; then
    need_cache
    ensure_venv "$ROOT/scripts/requirements.txt"
    ensure_fp16 "$1"
fi
ensure_tensorrt
ensure_tensorrt_binary
# What is named on the command line comes first, then an installed library, then the fetched one.
libraries=()
case " $* " in
    *" --tensorrt-library-dir"* | *" --flavour tensorrt "* | *" --flavour=tensorrt "*) ;;
    *)
        ldconfig -p 2>/dev/null | grep -qE 'libtensorrt_rtx\.so\.1|libnvinfer\.so\.1[01]' ||
            libraries=(--tensorrt-library-dir "$THIRD_PARTY/tensorrt-rtx/lib"
                --cuda-library-dir "$THIRD_PARTY/cuda/lib")
        ;;
esac
exec "$BINARY" build-engine "${libraries[@]}" "$@"
