# shellcheck shell=bash
# Serving on a machine with an NVIDIA driver: TensorRT as it is installed or from NVIDIA's wheels,
# and a binary with it. Sourced after setup.sh and tensorrt.sh; what the user set is in variables
# that flags.py has assigned.

# What NVIDIA publishes for each CUDA that a driver may know. Where it comes from is for pip's own
# settings to say: PyPI has those of TensorRT for x86-64 only.
TENSORRT_WHEELS_13=(tensorrt-cu13-libs==11.4.0.106 nvidia-cuda-runtime==13.5.37)
TENSORRT_WHEELS_12=(tensorrt-cu12-libs==11.4.0.106 nvidia-cuda-runtime-cu12==12.9.79)
TENSORRT_MB=9000

fill_tensorrt_wheels() {
    local log="$NEW.log"
    mkdir -p "$NEW"
    if ! by_pip "$PYTHON" --no-deps --target "$NEW" "$@" >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        die "pip cannot get $* for $(uname -m): install TensorRT yourself, or name an index that" \
            "has these wheels with PIP_EXTRA_INDEX_URL"
    fi
    rm -f "$log"
}

# ensure_tensorrt_libraries: SETTINGS name TensorRT and the CUDA runtime when neither the user nor
# the loader knows where they are.
ensure_tensorrt_libraries() {
    local cuda wheels folder found
    if [ -n "${tensorrt_library_dir:-}" ]; then
        say "TensorRT is that in $tensorrt_library_dir"
        return
    fi
    if found=$(installed_library 'libnvinfer\.so\.1[01]|libtensorrt_rtx\.so\.1'); then
        say "TensorRT is installed: $found"
        return
    fi
    cuda=$(cuda_of_driver)
    case $cuda in
        12) wheels=("${TENSORRT_WHEELS_12[@]}") ;;
        '' | [0-9] | 1[01]) die "the driver is for CUDA ${cuda:-of no version}: 12 is the oldest" ;;
        *) wheels=("${TENSORRT_WHEELS_13[@]}") ;;
    esac
    folder="$CACHE/tensorrt-$(sha256sum <<<"${wheels[*]}" | cut -c1-16)"
    made_once "$folder" "$TENSORRT_MB" TensorRT fill_tensorrt_wheels "${wheels[@]}"
    SETTINGS+=("DUOVEC_TENSORRT_LIBRARY_DIR=$folder/tensorrt_libs")
    found=$(find "$folder/nvidia" -name 'libcudart.so.1[23]' 2>/dev/null | head -n 1)
    [ -n "$found" ] || die "the wheel ${wheels[1]} has no libcudart"
    [ -n "${cuda_library_dir:-}" ] ||
        SETTINGS+=("DUOVEC_CUDA_LIBRARY_DIR=$(dirname "$found")")
}

# prepare_gpu FILE PACKAGE: all of it; writes the binary and the variables to serve with into FILE,
# a line each. Ends the shell it runs in where a step fails.
prepare_gpu() {
    local file=$1 package=$2
    SETTINGS=()
    ensure_tensorrt_libraries
    ensure_tensorrt
    ensure_binary default,tensorrt,tensorrt-rtx
    # An fp16 graph would be preferred to a bf16 one, which was made on purpose.
    [ -e "$package/model.bf16.onnx" ] || ensure_fp16 "$package"
    [ -n "${build_plan:-}" ] || SETTINGS+=(DUOVEC_BUILD_PLAN=true)
    printf '%s\n' "$BINARY" "${SETTINGS[@]}" >"$file"
}
