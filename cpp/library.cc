#include "library.h"

#include <dlfcn.h>

#include <cstdint>

#include "builder.h"
#include "diagnostics.h"
#include "engine.h"
#include "error.h"

namespace duovec::DUOVEC_FLAVOUR {
namespace {

/// No object lies below it; versions without a driver return 0x228 instead of null.
constexpr std::uintptr_t kLowestAddress = 65536;

std::string wanted() {
    std::string const major = std::to_string(NV_TENSORRT_MAJOR) + ".";
    std::string const oldest = std::string(kProduct) + " " + major + std::to_string(kOldestMinor);
    return kOldestMinor == kNewestMinor ? oldest : oldest + " or a later " + major + "x";
}

void* open_file(std::string const& directory, char const* file) {
    std::string const path = directory.empty() ? file : directory + "/" + file;
    // Never closed: see the header.
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        char const* const reason = dlerror();
        throw Error(ErrorKind::kLibrary, "cannot open " + path + " (" + wanted() +
                                             " is needed): " + (reason ? reason : "no reason"));
    }
    return handle;
}

template <typename Function>
Function* find(void* handle, char const* name) {
    return reinterpret_cast<Function*>(dlsym(handle, name));
}

template <typename Function>
Function* require(void* handle, char const* name) {
    auto* const function = find<Function>(handle, name);
    if (function == nullptr) {
        throw Error(ErrorKind::kLibrary,
                    std::string("the library has no function ") + name + ": it is not " + wanted());
    }
    return function;
}

Version read_version(void* handle) {
    std::int32_t const number = require<std::int32_t()>(handle, "getInferLibVersion")();
    auto* const build = find<std::int32_t()>(handle, "getInferLibBuildVersion");
    return {number / 10000, number / 100 % 100, number % 100, build == nullptr ? 0 : build()};
}

/// What a program says that was compiled with this version's own headers.
std::int32_t constant_of(Version const& version) {
    return version.major * 10000 + version.minor * 100 + version.patch;
}

template <typename Object>
std::unique_ptr<Object> checked(void* pointer, char const* what) {
    if (reinterpret_cast<std::uintptr_t>(pointer) < kLowestAddress) {
        throw Error(ErrorKind::kDevice, std::string(kProduct) + " gives no " + what +
                                            ": is there an NVIDIA driver and a GPU?");
    }
    return std::unique_ptr<Object>(static_cast<Object*>(pointer));
}

}  // namespace

std::uint32_t strongly_typed() {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    constexpr auto kFlag = nvinfer1::NetworkDefinitionCreationFlag::kSTRONGLY_TYPED;
#pragma GCC diagnostic pop
    return 1U << static_cast<std::uint32_t>(kFlag);
}

Library::Library(std::string directory)
    : directory_(std::move(directory)), handle_(open_file(directory_, kRuntimeFile)) {
    // The libraries accept any constant of their headers, so the version is compared here.
    version_ = read_version(handle_);
    bool const known = version_.minor >= kOldestMinor && version_.minor <= kNewestMinor;
    if (version_.major != NV_TENSORRT_MAJOR || !known) {
        throw Error(ErrorKind::kLibrary,
                    std::string(kRuntimeFile) + " is version " + std::to_string(version_.major) +
                        "." + std::to_string(version_.minor) + "." +
                        std::to_string(version_.patch) + ", this program needs " + wanted());
    }
}

std::unique_ptr<Plan> Library::build(BuildRequest const& request, BuildObserver& observer) const {
    return build_plan(shared_from_this(), request, observer);
}

std::unique_ptr<Engine> Library::load(EngineRequest const& request) const {
    return std::make_unique<LoadedEngine>(shared_from_this(), request);
}

std::unique_ptr<nvinfer1::IBuilder> Library::create_builder(nvinfer1::ILogger& logger) const {
    auto* const create =
        require<void*(void*, std::int32_t)>(handle_, "createInferBuilder_INTERNAL");
    return checked<nvinfer1::IBuilder>(create(&logger, constant_of(version_)), "builder");
}

std::unique_ptr<nvinfer1::IRuntime> Library::create_runtime(nvinfer1::ILogger& logger) const {
    auto* const create =
        require<void*(void*, std::int32_t)>(handle_, "createInferRuntime_INTERNAL");
    return checked<nvinfer1::IRuntime>(create(&logger, constant_of(version_)), "runtime");
}

std::unique_ptr<nvonnxparser::IParser> Library::create_parser(nvinfer1::INetworkDefinition& network,
                                                              nvinfer1::ILogger& logger) const {
    void* const handle = open_file(directory_, kParserFile);
    auto* const create = require<void*(void*, void*, int)>(handle, "createNvOnnxParser_INTERNAL");
    return checked<nvonnxparser::IParser>(create(&network, &logger, NV_ONNX_PARSER_VERSION),
                                          "ONNX parser");
}

std::shared_ptr<Backend> open_backend(std::string const& directory, LogSink sink) {
    set_log_sink(sink);
    return std::make_shared<Library>(directory);
}

}  // namespace duovec::DUOVEC_FLAVOUR
