#include "ceiling.h"

#include <algorithm>
#include <array>
#include <vector>

#include "cuda.h"
#include "diagnostics.h"
#include "error.h"

namespace duovec::DUOVEC_FLAVOUR {
namespace {

/// Rows and columns of every matrix: large enough to fill any GPU, 128 MiB for each.
constexpr std::int64_t kSize = 8192;
/// Products of one run, each of the last one's result.
constexpr int kProducts = 4;
constexpr int kRuns = 5;
constexpr std::size_t kBytes = kSize * kSize * sizeof(std::uint16_t);
constexpr double kOperations = 2.0 * kProducts * kSize * kSize * kSize;

[[noreturn]] void refuse(Diagnostics const& diagnostics) {
    throw Error(diagnostics.kind(ErrorKind::kDevice),
                std::string(kProduct) +
                    " cannot multiply matrices here: " + diagnostics.errors("it gives no reason"));
}

template <typename Object>
Object& there(Object* object, Diagnostics const& diagnostics) {
    if (object == nullptr) {
        refuse(diagnostics);
    }
    return *object;
}

std::unique_ptr<nvinfer1::IHostMemory> build(Library const& library, Diagnostics& diagnostics) {
    auto const builder = library.create_builder(logger());
    builder->setErrorRecorder(&diagnostics);
    std::unique_ptr<nvinfer1::INetworkDefinition> const network(
        builder->createNetworkV2(strongly_typed()));
    std::unique_ptr<nvinfer1::IBuilderConfig> const config(builder->createBuilderConfig());
    nvinfer1::Dims const shape{2, {kSize, kSize}};
    auto const input = [&](char const* name) {
        return &there(network->addInput(name, nvinfer1::DataType::kHALF, shape), diagnostics);
    };
    nvinfer1::ITensor* left = input("left");
    nvinfer1::ITensor* const right = input("right");
    auto const plain = nvinfer1::MatrixOperation::kNONE;
    for (int product = 0; product < kProducts; ++product) {
        auto* const layer = network->addMatrixMultiply(*left, plain, *right, plain);
        left = there(layer, diagnostics).getOutput(0);
    }
    left->setName("product");
    network->markOutput(*left);
    config->setMaxAuxStreams(0);
    std::unique_ptr<nvinfer1::IHostMemory> plan(builder->buildSerializedNetwork(*network, *config));
    there(plan.get(), diagnostics);
    return plan;
}

/// Small numbers of both signs: zeros would let the GPU run faster than real values do.
void fill(void* memory) {
    auto* const halves = static_cast<std::uint16_t*>(memory);
    std::uint32_t state = 1;
    std::generate_n(halves, kSize * kSize, [&] {
        state = state * 1664525U + 1013904223U;
        return static_cast<std::uint16_t>((state >> 16 & 0x83ffU) | 0x2000U);
    });
}

}  // namespace

double tensor_ceiling(Library const& library, std::int32_t device, std::string const& cuda_file) {
    Diagnostics diagnostics;
    Cuda const cuda(cuda_file);
    // A plan is for the thread's device. One that is not there is refused below, in other words.
    static_cast<void>(cuda.call().cudaSetDevice(device));
    auto const plan = build(library, diagnostics);
    cuda.use(device);
    CudaFunctions const& call = cuda.call();
    auto const runtime = library.create_runtime(logger());
    runtime->setErrorRecorder(&diagnostics);
    std::unique_ptr<nvinfer1::ICudaEngine> const engine(
        runtime->deserializeCudaEngine(plan->data(), plan->size()));
    std::array<DeviceMemory, 3> memory;
    CudaStream const stream = create_stream(cuda, StreamPriority::kLeast);
    std::unique_ptr<nvinfer1::IExecutionContext> const context(
        there(engine.get(), diagnostics).createExecutionContext());
    there(context.get(), diagnostics);
    PinnedMemory const pinned = allocate_pinned(cuda, kBytes, "a matrix");
    fill(pinned.get());
    constexpr std::array<char const*, 3> kNames = {"left", "right", "product"};
    for (std::size_t at = 0; at < kNames.size(); ++at) {
        memory[at] = allocate_device(cuda, kBytes, "a matrix");
        context->setTensorAddress(kNames[at], memory[at].get());
        cuda.check(call.cudaMemcpyAsync(memory[at].get(), pinned.get(), kBytes,
                                        cudaMemcpyHostToDevice, stream.get()),
                   "copy a matrix");
    }
    CudaEvent const begin = create_event(cuda);
    CudaEvent const end = create_event(cuda);
    double best = 0;
    // The first run also prepares; the best of the others counts.
    for (int run = 0; run <= kRuns; ++run) {
        cuda.check(call.cudaEventRecord(begin.get(), stream.get()), "record an event");
        if (!context->enqueueV3(stream.get())) {
            refuse(diagnostics);
        }
        cuda.check(call.cudaEventRecord(end.get(), stream.get()), "record an event");
        cuda.check(call.cudaStreamSynchronize(stream.get()), "wait for the device");
        float milliseconds = 0;
        cuda.check(call.cudaEventElapsedTime(&milliseconds, begin.get(), end.get()),
                   "read an event's time");
        best = run == 0 ? 0 : std::max(best, kOperations * 1e3 / double(milliseconds));
    }
    return best;
}

}  // namespace duovec::DUOVEC_FLAVOUR
