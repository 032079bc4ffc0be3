// The flavour that this translation unit is compiled for: its headers, namespace and names.
//
// The build gives -DDUOVEC_FLAVOUR=tensorrt with the headers of TensorRT 11, tensorrt_10 with those
// of 10, or rtx with those of TensorRT-RTX and -DDUOVEC_RTX=1. The vendor's namespaces are renamed
// for the last two (-Dnvinfer1=nvinfer1_rtx -Dnvonnxparser=nvonnxparser_rtx, and _10), since the
// class tables differ although all names are equal. All code that sees a vendor type is in
// namespace duovec::DUOVEC_FLAVOUR, so that the linker can merge nothing across flavours. Only
// sources of a flavour may include this file.

#pragma once

#ifndef DUOVEC_FLAVOUR
#error "a source of a flavour needs -DDUOVEC_FLAVOUR=tensorrt, tensorrt_10 or rtx"
#endif

#include <NvInfer.h>
#include <NvOnnxParser.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "backend.h"

namespace duovec::DUOVEC_FLAVOUR {

#ifdef DUOVEC_RTX
constexpr Flavour kFlavour = Flavour::kTensorRtRtx;
constexpr char const* kProduct = "TensorRT-RTX";
constexpr char const* kRuntimeFile = "libtensorrt_rtx.so.1";
constexpr char const* kParserFile = "libtensorrt_onnxparser_rtx.so.1";
// Its tables lost entries between 1.3 and 1.7, so a release fits its own headers only.
constexpr std::int32_t kOldestMinor = NV_TENSORRT_MINOR;
constexpr std::int32_t kNewestMinor = NV_TENSORRT_MINOR;
#else
// Within these majors tables only grow as far as functions are called, and nothing is called that
// the oldest minor lacks (tests/tensorrt/class_tables.py). 10.8 alone has an entry too many, behind
// all that is called of that class.
constexpr Flavour kFlavour = Flavour::kTensorRt;
constexpr char const* kProduct = "TensorRT";
constexpr std::int32_t kNewestMinor = 99;
#if NV_TENSORRT_MAJOR == 10
constexpr char const* kRuntimeFile = "libnvinfer.so.10";
constexpr char const* kParserFile = "libnvonnxparser.so.10";
constexpr std::int32_t kOldestMinor = 1;
#elif NV_TENSORRT_MAJOR == 11
constexpr char const* kRuntimeFile = "libnvinfer.so.11";
constexpr char const* kParserFile = "libnvonnxparser.so.11";
constexpr std::int32_t kOldestMinor = 0;
#else
#error "these headers are of no major version that is known"
#endif
#endif

/// A tensor's sizes in a batch of that shape.
inline nvinfer1::Dims dims_of(TensorRule const& rule, Shape shape, std::int32_t columns) {
    nvinfer1::Dims dims{};
    for (Axis const axis : rule.axes) {
        dims.d[dims.nbDims++] = size_of(axis, shape, columns);
    }
    return dims;
}

/// The same in a graph or a plan: -1 for all but the model's own size.
inline nvinfer1::Dims open_dims(TensorRule const& rule, std::int32_t columns) {
    nvinfer1::Dims dims{};
    for (Axis const axis : rule.axes) {
        dims.d[dims.nbDims++] = axis == Axis::kColumns ? columns : -1;
    }
    return dims;
}

/// Empty when there is none.
inline std::vector<std::uint8_t> copied(std::unique_ptr<nvinfer1::IHostMemory> const& memory) {
    if (memory == nullptr) {
        return {};
    }
    auto const* const begin = static_cast<std::uint8_t const*>(memory->data());
    return {begin, begin + memory->size()};
}

inline bool same(nvinfer1::Dims const& a, nvinfer1::Dims const& b) {
    return a.nbDims == b.nbDims && std::equal(a.d, a.d + std::max(a.nbDims, 0), b.d);
}

}  // namespace duovec::DUOVEC_FLAVOUR
