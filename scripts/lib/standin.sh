# shellcheck shell=bash
# The stand-ins for NVIDIA's libraries, which tests without a GPU load in place of the real ones.
# Sourced; everything runs from the repository root.

# cpp/cuda.h must not hide the header of that name.
STANDIN_COMPILE=(c++ -std=c++20 -g1 -O1 -fPIC -shared -Wall -Wextra -Wpedantic -Werror -pthread
    -fvisibility=hidden -ffp-contract=off -iquote cpp -isystem third_party/cuda/include)

# make_standins FOLDER FLAVOURS [EXTRA_FLAGS...]: libcudart.so.13 and .12, and for each of the
# flavours, which are one word, its library and its parser's. Those of TensorRT 10 lie in FOLDER/10,
# beside links to the others.
make_standins() {
    local folder=$1 flavours=$2 traps result=0
    shift 2
    mkdir -p "$folder" || return
    traps=$(mktemp -d) || return
    standin_cuda "$folder" "$@" && standin_flavours "$folder" "$traps" "$flavours" "$@" || result=$?
    rm -rf "$traps"
    return "$result"
}

# standin_cuda FOLDER [EXTRA_FLAGS...]
standin_cuda() {
    local folder=$1
    shift
    "${STANDIN_COMPILE[@]}" "$@" -Wl,-soname,libcudart.so.13 cpp/testing/standin_cuda.cc \
        cpp/testing/standin_graph.cc cpp/testing/standin_faults.cc cpp/testing/standin_state.cc \
        -o "$folder/libcudart.so.13" &&
        "${STANDIN_COMPILE[@]}" "$@" -Wl,-soname,libcudart.so.12 "-Wl,-rpath,\$ORIGIN" \
            cpp/testing/standin_cuda_12.cc "$folder/libcudart.so.13" \
            -o "$folder/libcudart.so.12"
}

# standin_flavours FOLDER TRAPS FLAVOURS [EXTRA_FLAGS...]: all of them at the same time.
standin_flavours() {
    local name job result=0
    local -a names jobs=()
    read -ra names <<<"$3"
    for name in "${names[@]}"; do
        "standin_$name" "$1" "$2" "${@:4}" &
        jobs+=("$!")
    done
    for job in "${jobs[@]}"; do wait "$job" || result=$?; done
    return "$result"
}

# standin_NAME FOLDER TRAPS [EXTRA_FLAGS...]
standin_tensorrt() {
    standin_flavour "$1" "$2" tensorrt libnvinfer.so.11 libnvonnxparser.so.11 "${@:3}"
}

standin_tensorrt_10() {
    mkdir -p "$1/10" &&
        ln -sf ../libcudart.so.13 ../libcudart.so.12 ../libtensorrt_rtx.so.1 \
            ../libtensorrt_onnxparser_rtx.so.1 "$1/10/" &&
        standin_flavour "$1/10" "$2" tensorrt-10 libnvinfer.so.10 libnvonnxparser.so.10 \
            -Dnvinfer1=nvinfer1_10 -Dnvonnxparser=nvonnxparser_10 "${@:3}"
}

standin_rtx() {
    standin_flavour "$1" "$2" tensorrt-rtx libtensorrt_rtx.so.1 \
        libtensorrt_onnxparser_rtx.so.1 -DDUOVEC_RTX=1 -Dnvinfer1=nvinfer1_rtx \
        -Dnvonnxparser=nvonnxparser_rtx "${@:3}"
}

# standin_flavour FOLDER TRAPS HEADERS FILE PARSER_FILE [FLAGS...]
standin_flavour() {
    local folder=$1 traps="$2/$3" headers="third_party/headers/$3" file=$4 parser=$5
    shift 5
    mkdir -p "$traps" &&
        "${PYTHON:-python3}" cpp/testing/make_traps.py "$headers" "$traps" &&
        "${STANDIN_COMPILE[@]}" -DTENSORRT_BUILD_LIB "$@" -isystem "$headers" -I"$traps" \
            "-Wl,-soname,$file" "-Wl,-rpath,\$ORIGIN" cpp/testing/standin_tensorrt.cc \
            cpp/testing/standin_builder.cc cpp/testing/standin_context.cc \
            cpp/testing/standin_plan.cc "$folder/libcudart.so.13" -o "$folder/$file" &&
        "${STANDIN_COMPILE[@]}" -DTENSORRT_BUILD_LIB "$@" -isystem "$headers" -I"$traps" \
            "-Wl,-soname,$parser" "-Wl,-rpath,\$ORIGIN" cpp/testing/standin_parser.cc \
            "$folder/$file" "$folder/libcudart.so.13" -o "$folder/$parser"
}

# make_gpu_standins FOLDER [EXTRA_FLAGS...]: the library of TensorRT that runs kernels of its own on
# a real GPU. It is linked to nothing of CUDA's.
make_gpu_standins() {
    local folder=$1 headers=third_party/headers/tensorrt traps result=0
    shift
    mkdir -p "$folder" || return
    traps=$(mktemp -d) || return
    "${PYTHON:-python3}" cpp/testing/make_traps.py "$headers" "$traps" &&
        "${STANDIN_COMPILE[@]}" -DTENSORRT_BUILD_LIB "$@" -isystem "$headers" -I"$traps" \
            -Wl,-soname,libnvinfer.so.11 -Wl,-z,defs cpp/testing/standin_tensorrt.cc \
            cpp/testing/standin_context.cc cpp/testing/standin_plan.cc \
            cpp/testing/standin_faults.cc cpp/testing/standin_device.cc -ldl \
            -o "$folder/libnvinfer.so.11" || result=$?
    rm -rf "$traps"
    return "$result"
}

# make_standin_driver FOLDER CUDA [EXTRA_FLAGS...]: libcuda.so.1 for tests of the above, on the
# stand-in for CUDA's runtime in the folder CUDA.
make_standin_driver() {
    local folder=$1 cuda=$2
    shift 2
    mkdir -p "$folder" &&
        "${STANDIN_COMPILE[@]}" "$@" -Wl,-soname,libcuda.so.1 "-Wl,-rpath,$cuda" \
            cpp/testing/standin_driver.cc "$cuda/libcudart.so.13" -o "$folder/libcuda.so.1"
}
