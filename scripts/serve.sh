#!/usr/bin/env bash
# Sets up all that is needed, builds the release binary and serves a model on 127.0.0.1:8080, the
# default package where none is named:
#
#   scripts/serve.sh [--cpu] [--model NAME[@REVISION]] [ARGUMENTS OF duovec serve]
#
# --model is a model's name on the hub, such as BAAI/bge-m3, or a folder with one. What is needed
# of it is fetched, and the package that is made of it is kept in the cache folder. The next start
# needs no network. --no-sparse, --pooling, --max-tokens, --shorter-vectors, --query-prompt and
# --passage-prompt win over what the model's files say, --token-vectors takes in BGE-M3's vectors of
# each token, and --update asks the hub for a newer revision: scripts/export_onnx.py, which makes
# the package, describes them.
#
# Where NVIDIA's driver shows a GPU it serves on that, with a plan that the server builds for this
# GPU. TensorRT is that of --tensorrt-library-dir, else the installed one, else NVIDIA's wheels for
# the driver's CUDA, which go to the cache folder. Where a step of that fails it says why and serves
# on the CPU; --cpu asks for that at once, and so does --engine openvino or fake.
#
# With --precision int8 it serves on the CPU, and adds the graph in 8 bits to the default package.
#
# Once it is built, `target/release/duovec serve --help` lists the arguments.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
. "$ROOT/scripts/lib/tensorrt.sh"
. "$ROOT/scripts/lib/gpu.sh"

# say_how_to_use BINARY: a line of its own to copy into another terminal, whose folder is another.
say_how_to_use() {
    local libraries folder
    libraries=$(realpath -sm -- "$DUOVEC_OPENVINO_LIBRARY_DIR")
    folder=$(realpath -s -- "$(dirname "$1")")
    say "to run other commands of duovec, in another terminal:"
    printf "export DUOVEC_OPENVINO_LIBRARY_DIR=%q PATH=%q:\$PATH\n" "$libraries" "$folder" >&2
}

answer_help "$@"
need_python
# What flags.py assigns. Before anything is made that takes minutes, it refuses an unknown flag and
# a wrong port, engine, precision or package. The program checks the other values.
arguments=() wishes=() GPU='' package='' engine='' precision='' openvino_library_dir=''
assignments=$(python3 "$ROOT/scripts/model_export/flags.py" "$@") || exit
eval "$assignments"
set -- "${arguments[@]}"
need_tools
need_cache
ensure_venv "$ROOT/scripts/requirements.txt"
# That is OpenVINO's wheel, unless a flag, a variable or the file of settings names another.
DUOVEC_OPENVINO_LIBRARY_DIR=${openvino_library_dir:-$DUOVEC_OPENVINO_LIBRARY_DIR}
if [ "${#wishes[@]}" -gt 0 ]; then
    package=$("$PYTHON" "$ROOT/scripts/export_onnx.py" --precision fp32 "${wishes[@]}") ||
        die "the model cannot be served; the reason stands above"
    set -- "$@" --package "$package"
elif [ -z "$package" ]; then
    ensure_package
    package="$ROOT/engines/$PACKAGE_NAME"
    export DUOVEC_PACKAGE=$package
fi
case $engine in openvino | fake) GPU=false ;; esac
if [ "$precision" = int8 ]; then
    GPU=false
    ensure_int8 "$package"
fi
if [ "$GPU" = true ] && has_gpu; then
    ready=$(mktemp)
    if (prepare_gpu "$ready" "$package"); then
        mapfile -t command <"$ready"
        rm -f "$ready"
        say_how_to_use "${command[0]}"
        say "starting ${command[0]} for the GPU"
        exec env "${command[@]:1}" "${command[0]}" serve "$@"
    fi
    rm -f "$ready"
    say "the GPU is not used, the reason stands above: serving on the CPU"
fi
ensure_binary default
say_how_to_use "$BINARY"
say "starting $BINARY"
exec "$BINARY" serve "$@"
