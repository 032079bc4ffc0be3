// What the tests of the stand-ins share: the libraries, a plan, and one context with its memory.
//
// Thread safety: one thread. Ownership: a Rig destroys what it made, in the right order.
// Preconditions: DUOVEC_TEST_STANDINS names the folder that make_standins filled.

#pragma once

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "flavour.h"
#include "testing/check.h"
#include "testing/standin.h"

namespace duovec::testing {

namespace trt = nvinfer1;
namespace flavour = duovec::DUOVEC_FLAVOUR;

inline void* open_library(char const* file) {
    std::string const path = std::string(DUOVEC_TEST_STANDINS) + "/" + file;
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        throw std::runtime_error(dlerror());
    }
    return handle;
}

/// A function of the CUDA stand-in.
template <typename Function>
class CudaFunction {
 public:
    explicit CudaFunction(char const* name) {
        static void* const handle = open_library("libcudart.so.13");
        function_ = reinterpret_cast<Function>(dlsym(handle, name));
        if (function_ == nullptr) {
            throw std::runtime_error(std::string("no function ") + name);
        }
    }

    template <typename... Arguments>
    auto operator()(Arguments... arguments) const {
        return function_(arguments...);
    }

 private:
    Function function_ = nullptr;
};

#define CUDA(name) (duovec::testing::CudaFunction<decltype(&::name)>(#name))

template <typename Function>
Function* nvinfer(char const* name) {
    static void* const handle = open_library(flavour::kRuntimeFile);
    return reinterpret_cast<Function*>(dlsym(handle, name));
}

inline void fault(char const* spec) { CUDA(duovec_standin_fault)(spec); }
inline long live() { return CUDA(duovec_standin_live)(); }
inline long count(char const* what) { return CUDA(duovec_standin_count)(what); }

inline void expect(cudaError_t error) {
    if (error != cudaSuccess) {
        throw std::runtime_error(CUDA(cudaGetErrorName)(error));
    }
}

/// Keeps the errors that the library logs or records.
class ErrorListener final : public trt::ILogger, public trt::IErrorRecorder {
 public:
    std::string logged;
    std::string recorded;
    std::int32_t references = 0;

    void log(Severity severity, char const* text) noexcept override {
        logged += severity == Severity::kERROR ? text : "";
    }
    bool reportError(trt::ErrorCode, ErrorDesc text) noexcept override {
        recorded += text;
        return true;
    }
    std::int32_t getNbErrors() const noexcept override { return 0; }
    trt::ErrorCode getErrorCode(std::int32_t) const noexcept override {
        return trt::ErrorCode::kSUCCESS;
    }
    ErrorDesc getErrorDesc(std::int32_t) const noexcept override { return ""; }
    bool hasOverflowed() const noexcept override { return false; }
    void clear() noexcept override { recorded.clear(); }
    RefCount incRefCount() noexcept override { return ++references; }
    RefCount decRefCount() noexcept override { return --references; }
    trt::InterfaceInfo getInterfaceInfo() const noexcept override { return {"Listener", 1, 0}; }
    trt::APILanguage getAPILanguage() const noexcept override { return trt::APILanguage::kCPP; }
};

constexpr std::int64_t kColumns = 16;
constexpr std::int64_t kScratch = 4096;

constexpr bool kIsRtx = flavour::kFlavour == Flavour::kTensorRtRtx;

/// Of the flavour; `dense` is a type.
inline std::string plan_text(std::string const& dense = "float32") {
    std::string const name = flavour::kFlavour == Flavour::kTensorRt ? "tensorrt" : "tensorrt-rtx";
    std::string const more = kIsRtx ? "user_allocation\n" : "";
    return "duovec stand-in plan 1\nflavour " + name + "\n" + more +
           "input input_ids int32 -1 -1\ninput positions int32 -1 -1\n"
           "input segments int32 -1 -1\ninput span_weights float32 -1 -1 -1\n"
           "output dense " +
           dense +
           " -1 -1 16\noutput token_weights float32 -1 -1\nprofile 1 1 1 32 8 128\n"
           "profile 1 1 4 64 4 512\nscratch 4096\nscratch 8192\n";
}

inline trt::Dims dims(std::int32_t rows, std::int32_t length) {
    return flavour::dims_of(kTensorRules[kInputIds], {rows, length}, 0);
}

inline std::unique_ptr<trt::IRuntime> make_runtime(ErrorListener& listener) {
    auto* const create = nvinfer<void*(void*, std::int32_t)>("createInferRuntime_INTERNAL");
    auto& logger = static_cast<trt::ILogger&>(listener);
    return std::unique_ptr<trt::IRuntime>(
        static_cast<trt::IRuntime*>(create(&logger, NV_TENSORRT_VERSION)));
}

/// Where the parts of the memory begin, each with room for 8 rows of 128 positions.
struct RigLayout {
    static constexpr std::size_t kIds = 0;
    static constexpr std::size_t kPositions = 4096;
    static constexpr std::size_t kSegments = 8192;
    static constexpr std::size_t kCounts = 12288;
    static constexpr std::size_t kDense = 77824;
    static constexpr std::size_t kWeights = 86016;
    static constexpr std::size_t kBytes = 90112;
    /// By TensorName.
    static constexpr std::size_t kPlaces[] = {kIds,    kPositions, kSegments,
                                              kCounts, kDense,     kWeights};
};

/// A context with memory of device and host for its tensors, and a stream.
class Rig {
 public:
    explicit Rig(std::string const& plan = plan_text()) {
        auto& recorder = static_cast<trt::IErrorRecorder&>(listener);
        runtime = make_runtime(listener);
        engine.reset(runtime->deserializeCudaEngine(plan.data(), plan.size()));
        if (engine == nullptr) {
            throw std::runtime_error(listener.logged);
        }
        context.reset(
            engine->createExecutionContext(trt::ExecutionContextAllocationStrategy::kUSER_MANAGED));
        context->setErrorRecorder(&recorder);
        expect(CUDA(cudaStreamCreateWithFlags)(&stream, cudaStreamNonBlocking));
        expect(CUDA(cudaMalloc)(reinterpret_cast<void**>(&device), RigLayout::kBytes));
        expect(CUDA(cudaMalloc)(&scratch, static_cast<std::size_t>(kScratch)));
        expect(CUDA(cudaHostAlloc)(reinterpret_cast<void**>(&host), RigLayout::kBytes,
                                   unsigned{cudaHostAllocMapped}));
    }
    Rig(Rig const&) = delete;
    Rig& operator=(Rig const&) = delete;
    ~Rig() {
        synchronize();
        if (exec != nullptr) {
            CUDA(cudaGraphExecDestroy)(exec);
        }
        CUDA(cudaStreamDestroy)(stream);
        CUDA(cudaFree)(device);
        CUDA(cudaFree)(scratch);
        CUDA(cudaFreeHost)(host);
    }

    /// Selects the first profile and sets memory and shape; false when the shape is refused.
    bool prepare(std::int32_t rows, std::int32_t length) {
        context->setOptimizationProfileAsync(0, stream);
        context->setDeviceMemoryV2(scratch, kScratch);
        bind(device);
        return reshape(rows, length);
    }

    /// Sets the shape of all inputs.
    bool reshape(std::int32_t rows, std::int32_t length) const {
        return std::ranges::all_of(kInputRules, [&](TensorRule const& rule) {
            auto const sizes = flavour::dims_of(rule, {rows, length}, 0);
            return context->setInputShape(rule.name, sizes);
        });
    }

    /// All tensors are in that block from now on.
    void bind(char* block) const {
        for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
            char const* const name = kTensorRules[tensor].name;
            char* const place = block + RigLayout::kPlaces[tensor];
            tensor < kInputs ? context->setInputTensorAddress(name, place)
                             : context->setOutputTensorAddress(name, place);
        }
    }

    /// All tensors are in the host's memory from now on, where the device sees it.
    void use_mapping() const {
        void* mapping = nullptr;
        expect(CUDA(cudaHostGetDevicePointer)(&mapping, static_cast<void*>(host), 0U));
        bind(static_cast<char*>(mapping));
    }

    /// A text of `count` tokens in the row, from its token `begin` on: the row's text `number`, of
    /// which all tokens count.
    template <typename IdAt>
    void write_text(std::size_t row, std::size_t length, std::size_t begin, std::size_t count,
                    std::int32_t number, IdAt const& id_at) const {
        auto const spans = static_cast<std::size_t>(spans_of(static_cast<std::int32_t>(length)));
        auto const span = row * spans + static_cast<std::size_t>(number);
        for (std::size_t token = 0; token < count; ++token) {
            std::size_t const place = row * length + begin + token;
            at<std::int32_t>(RigLayout::kIds)[place] = id_at(token);
            at<std::int32_t>(RigLayout::kPositions)[place] = static_cast<std::int32_t>(token);
            at<std::int32_t>(RigLayout::kSegments)[place] = number;
            at<float>(RigLayout::kCounts)[span * length + begin + token] =
                1.0F / static_cast<float>(count);
        }
    }

    /// No text anywhere.
    void clear_inputs() const {
        std::memset(host, 0, RigLayout::kDense);
        std::memset(host + RigLayout::kSegments, -1, RigLayout::kCounts - RigLayout::kSegments);
    }

    cudaError_t copy_in() const {
        return CUDA(cudaMemcpyAsync)(device, host, RigLayout::kDense, cudaMemcpyHostToDevice,
                                     stream);
    }
    cudaError_t copy_out() const {
        return CUDA(cudaMemcpyAsync)(host + RigLayout::kDense, device + RigLayout::kDense,
                                     RigLayout::kBytes - RigLayout::kDense, cudaMemcpyDeviceToHost,
                                     stream);
    }
    cudaError_t synchronize() const { return CUDA(cudaStreamSynchronize)(stream); }

    /// Inputs, one plain execution, outputs.
    void run() const {
        expect(copy_in());
        if (!context->enqueueV3(stream)) {
            throw std::runtime_error("enqueueV3: " + listener.recorded);
        }
        expect(copy_out());
        expect(synchronize());
    }

    /// What capturing one execution gives; `exec` is set when it is cudaSuccess.
    cudaError_t capture() {
        cudaGraph_t graph = nullptr;
        expect(CUDA(cudaStreamBeginCapture)(stream, cudaStreamCaptureModeThreadLocal));
        context->enqueueV3(stream);
        cudaError_t error = CUDA(cudaStreamEndCapture)(stream, &graph);
        if (error == cudaSuccess) {
            error = CUDA(cudaGraphInstantiateWithFlags)(&exec, graph, 0ULL);
            expect(CUDA(cudaGraphDestroy)(graph));
        }
        return error;
    }

    template <typename Value>
    Value* at(std::size_t offset) const {
        return reinterpret_cast<Value*>(host + offset);
    }

    ErrorListener listener;
    std::unique_ptr<trt::IRuntime> runtime;
    std::unique_ptr<trt::ICudaEngine> engine;
    std::unique_ptr<trt::IExecutionContext> context;
    cudaStream_t stream = nullptr;
    cudaGraphExec_t exec = nullptr;
    char* device = nullptr;
    void* scratch = nullptr;
    char* host = nullptr;
};

/// What `body` says on stderr before it aborts; when it does not, "not aborted: " and that.
template <typename Body>
std::string aborted(Body const& body) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) {
        return "not aborted: no pipe";
    }
    // Or the child would print what waits to be printed once more.
    std::fflush(nullptr);
    pid_t const child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        body();
        _exit(0);
    }
    close(ends[1]);
    std::string text;
    std::array<char, 256> part{};
    for (ssize_t got = 0; (got = read(ends[0], part.data(), part.size())) > 0;) {
        text.append(part.data(), static_cast<std::size_t>(got));
    }
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    bool const abort = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    return abort ? text : "not aborted: " + text.substr(0, 200);
}

}  // namespace duovec::testing
