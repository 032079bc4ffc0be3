# shellcheck shell=bash
# Serving on a machine with an NVIDIA driver: TensorRT as it is installed or from NVIDIA's wheels,
# and a binary with it. Sourced after setup.sh and tensorrt.sh.

# What NVIDIA publishes for each CUDA that a driver may know. Where it comes from is for pip's own
# settings to say.
TENSORRT_WHEELS_13=(tensorrt-cu13-libs==11.4.0.106 nvidia-cuda-runtime==13.5.37)
TENSORRT_WHEELS_12=(tensorrt-cu12-libs==11.4.0.106 nvidia-cuda-runtime-cu12==12.9.79)
TENSORRT_MB=9000

# has_gpu: whether NVIDIA's driver shows one.
has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

fill_tensorrt_wheels() {
    local log="$NEW.log"
    mkdir -p "$NEW"
    if ! "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
        --target "$NEW" "$@" >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        die "pip cannot get $*: install TensorRT yourself, or name an index that has these" \
            "wheels with PIP_EXTRA_INDEX_URL"
    fi
    rm -f "$log"
}

# ensure_tensorrt_libraries: LIBRARY_FLAGS name TensorRT and the CUDA runtime when the loader does
# not find them by itself.
ensure_tensorrt_libraries() {
    local cuda wheels folder found
    LIBRARY_FLAGS=()
    if ldconfig -p 2>/dev/null | grep -Eq 'libnvinfer\.so\.1[01] '; then
        say "TensorRT is installed"
        return
    fi
    cuda=$(nvidia-smi | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' | head -n 1)
    case $cuda in
        12) wheels=("${TENSORRT_WHEELS_12[@]}") ;;
        '' | [0-9] | 1[01]) die "the driver is for CUDA ${cuda:-of no version}: 12 is the oldest" ;;
        *) wheels=("${TENSORRT_WHEELS_13[@]}") ;;
    esac
    folder="$CACHE/tensorrt-$(sha256sum <<<"${wheels[*]}" | cut -c1-16)"
    if [ ! -e "$folder" ]; then
        need_disk "$CACHE" "$TENSORRT_MB" "TensorRT"
        say "installing ${wheels[0]} into $folder (some minutes, once)"
        (made_whole "$folder" fill_tensorrt_wheels "${wheels[@]}") || exit 1
    fi
    LIBRARY_FLAGS=(--tensorrt-library-dir "$folder/tensorrt_libs")
    found=$(find "$folder/nvidia" -name 'libcudart.so.1[23]' 2>/dev/null | head -n 1)
    [ -n "$found" ] || die "the wheel ${wheels[1]} has no libcudart"
    LIBRARY_FLAGS+=(--cuda-library-dir "$(dirname "$found")")
}

# prepare_gpu FILE: all of it; writes the binary and the arguments to serve with into FILE, a line
# each. Ends the shell it runs in where a step fails.
prepare_gpu() {
    ensure_tensorrt_libraries
    ensure_tensorrt
    ensure_binary default,tensorrt
    ensure_fp16 "$DUOVEC_PACKAGE"
    printf '%s\n' "$BINARY" --build-plan true "${LIBRARY_FLAGS[@]}" >"$1"
}
