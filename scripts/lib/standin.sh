# shellcheck shell=bash
# The stand-ins for NVIDIA's libraries, which tests without a GPU load in place of the real ones.
# Sourced; everything runs from the repository root.

# cpp/cuda.h must not hide the header of that name.
STANDIN_COMPILE=(c++ -std=c++20 -g1 -O1 -fPIC -shared -Wall -Wextra -Wpedantic -Werror -pthread
    -fvisibility=hidden -ffp-contract=off -iquote cpp -isystem third_party/cuda/include
    "-Wl,-rpath,\$ORIGIN")

# flavour_of NAME: the folder of its headers in HEADERS, its files in LIBRARY and PARSER, and in
# DEFINES what its sources are compiled with, so that nothing of one flavour has another's names.
flavour_of() {
    HEADERS=tensorrt LIBRARY=libnvinfer.so.11 PARSER=libnvonnxparser.so.11 DEFINES=()
    case $1 in
        tensorrt_10)
            HEADERS=tensorrt-10 LIBRARY=10/libnvinfer.so.10 PARSER=10/libnvonnxparser.so.10
            DEFINES=(-Dnvinfer1=nvinfer1_10 -Dnvonnxparser=nvonnxparser_10)
            ;;
        rtx)
            HEADERS=tensorrt-rtx LIBRARY=libtensorrt_rtx.so.1 PARSER=libtensorrt_onnxparser_rtx.so.1
            DEFINES=(-DDUOVEC_RTX=1 -Dnvinfer1=nvinfer1_rtx -Dnvonnxparser=nvonnxparser_rtx)
            ;;
    esac
}

# standin FILE PARTS [FLAGS AND LIBRARIES...]: a library of these sources of cpp/testing, which are
# compiled as one: NVIDIA's headers take most of the time.
standin() {
    local parts
    read -ra parts <<<"$2"
    mkdir -p "$(dirname "$1")" &&
        printf '#include "testing/standin_%s.cc"\n' "${parts[@]}" |
        "${STANDIN_COMPILE[@]}" "-Wl,-soname,$(basename "$1")" -x c++ - -x none -o "$1" "${@:3}"
}

# standin_with_traps FILE PARTS HEADERS [FLAGS AND LIBRARIES...]: one that has classes of TensorRT.
standin_with_traps() {
    local traps result=0
    traps=$(mktemp -d) || return
    "${PYTHON:-python3}" tests/tensorrt/make_traps.py "third_party/headers/$3" \
        "$traps/standin_traps.h" &&
        standin "$1" "$2" -DTENSORRT_BUILD_LIB -isystem "third_party/headers/$3" -I"$traps" \
            "${@:4}" || result=$?
    rm -rf "$traps"
    return "$result"
}

# make_standins FOLDER FLAVOURS [FLAGS...]: libcudart.so.13 and .12, and for each of the flavours,
# which are one word, its library, which is its parser's too. Those of TensorRT 10 lie in FOLDER/10,
# beside links to the others.
make_standins() {
    local folder=$1 name job jobs=() result=0
    standin "$folder/libcudart.so.13" "cuda graph state" "${@:3}" &&
        standin "$folder/libcudart.so.12" cuda_12 "$folder/libcudart.so.13" "${@:3}" || return
    mkdir -p "$folder/10" && ln -sf ../libcudart.so.13 ../libcudart.so.12 ../libtensorrt_rtx.so.1 \
        ../libtensorrt_onnxparser_rtx.so.1 "$folder/10/" || return
    for name in $2; do
        standin_flavour "$folder" "$name" "${@:3}" &
        jobs+=("$!")
    done
    for job in "${jobs[@]}"; do wait "$job" || result=$?; done
    return "$result"
}

# standin_flavour FOLDER NAME [FLAGS...]
standin_flavour() {
    flavour_of "$2"
    ln -sf "$(basename "$LIBRARY")" "$1/$PARSER" &&
        standin_with_traps "$1/$LIBRARY" "tensorrt builder context plan" "$HEADERS" \
            "$1/libcudart.so.13" "${DEFINES[@]}" "${@:3}"
}

# make_gpu_standins FOLDER: the library of TensorRT that runs kernels of its own on a real GPU. It
# is linked to nothing of CUDA's.
make_gpu_standins() {
    standin_with_traps "$1/libnvinfer.so.11" "tensorrt context plan device" tensorrt \
        -Wl,-z,defs -ldl
}

# make_standin_driver FOLDER CUDA: libcuda.so.1 for tests of the above, on the stand-in for CUDA's
# runtime in the folder CUDA.
make_standin_driver() {
    standin "$1/libcuda.so.1" driver "-Wl,-rpath,$2" "$2/libcudart.so.13"
}
