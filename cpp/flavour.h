// The flavour that this translation unit is compiled for: its headers, namespace and names.
//
// The build gives -DDUOVEC_FLAVOUR=tensorrt, or -DDUOVEC_FLAVOUR=rtx with -DDUOVEC_RTX=1 and the
// vendor's namespaces renamed (-Dnvinfer1=nvinfer1_rtx -Dnvonnxparser=nvonnxparser_rtx). All code
// that sees a vendor type is in namespace duovec::DUOVEC_FLAVOUR, so that the linker can merge
// nothing across flavours. Only sources of a flavour may include this file.

#pragma once

#ifndef DUOVEC_FLAVOUR
#error "a source of a flavour needs -DDUOVEC_FLAVOUR=tensorrt or rtx"
#endif

#include <NvInfer.h>
#include <NvOnnxParser.h>

#include "backend.h"

namespace duovec::DUOVEC_FLAVOUR {

#ifdef DUOVEC_RTX
constexpr Flavour kFlavour = Flavour::kTensorRtRtx;
constexpr char const* kProduct = "TensorRT-RTX";
constexpr char const* kRuntimeFile = "libtensorrt_rtx.so.1";
constexpr char const* kParserFile = "libtensorrt_onnxparser_rtx.so.1";
#else
constexpr Flavour kFlavour = Flavour::kTensorRt;
constexpr char const* kProduct = "TensorRT";
constexpr char const* kRuntimeFile = "libnvinfer.so.11";
constexpr char const* kParserFile = "libnvonnxparser.so.11";
#endif

}  // namespace duovec::DUOVEC_FLAVOUR
