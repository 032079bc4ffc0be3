// The stand-in for NVIDIA's driver, libcuda.so.1: what standin_device.cc calls of it, on the
// streams and the memory of the stand-in for CUDA's runtime. Its kernels run on the host.
//
// Thread safety, ownership: as the stand-in for the runtime. Preconditions: the kernel's parameters
// are those that this program was compiled with, which scripts/tests/test_gpu_check.py checks.

#include <cuda.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "testing/standin.h"

namespace {

using duovec::standin::kBlockTokens;
using duovec::standin::KernelArguments;
using duovec::standin::KernelThread;
using duovec::standin::MemoryKind;
using duovec::standin::Operation;

constexpr std::string_view kEntry = "duovec_standin_run";
/// Of a shorter sleep most is what the system adds.
constexpr std::chrono::microseconds kSleepMin(100);

void* handle_of(std::string_view name) { return const_cast<char*>(name.data()); }

void run_block(KernelArguments const& run, std::int32_t row, std::int32_t block) {
    for (std::int32_t thread = 0; thread < kBlockTokens; ++thread) {
        run_thread(run, KernelThread{row, block, thread});
    }
}

/// A sleep lasts longer than it was told to, so short ones are collected and the excess is kept.
void keep_busy(std::chrono::nanoseconds span) {
    thread_local std::chrono::nanoseconds owed(0);
    owed += span;
    if (owed >= kSleepMin) {
        auto const begin = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(owed);
        owed -= std::chrono::steady_clock::now() - begin;
    }
}

Operation operation_of(KernelArguments const& run, std::int32_t rows, std::int32_t blocks) {
    Operation kernel;
    kernel.name = "kernel";
    bool const writes = run.writes != 0;
    kernel.illegal = writes && run.dense == nullptr;
    auto const tokens = static_cast<std::size_t>(run.rows) * static_cast<std::size_t>(run.length);
    auto const spans = static_cast<std::size_t>(run.spans);
    auto const columns = static_cast<std::size_t>(run.columns);
    auto const add = [&](void const* address, std::size_t numbers, bool written, char const* what) {
        kernel.ranges.push_back({address, numbers * 4, written, MemoryKind::kDevice, what});
    };
    add(run.ids, tokens, false, "ids");
    add(run.positions, tokens, false, "positions");
    add(run.segments, tokens, false, "segments");
    add(run.span_weights, tokens * spans, false, "span weights");
    bool const has_weights = run.weights != nullptr;
    if (writes && !kernel.illegal) {
        add(run.dense, static_cast<std::size_t>(run.rows) * spans * columns, true, "dense");
        if (has_weights) {
            add(run.weights, tokens, true, "weights");
        }
    }
    kernel.body = [=](std::vector<void*> const& memory, bool) {
        KernelArguments here = run;
        here.ids = static_cast<std::int32_t const*>(memory[0]);
        here.positions = static_cast<std::int32_t const*>(memory[1]);
        here.segments = static_cast<std::int32_t const*>(memory[2]);
        here.span_weights = static_cast<float const*>(memory[3]);
        if (writes) {
            here.dense = static_cast<float*>(memory[4]);
            here.weights = has_weights ? static_cast<float*>(memory[5]) : nullptr;
        }
        for (std::int32_t at = 0; writes && at < rows * blocks; ++at) {
            run_block(here, at / blocks, at % blocks);
        }
        keep_busy(std::chrono::nanoseconds(run.busy_ns));
    };
    return kernel;
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

CUresult cuCtxGetDevice(CUdevice* device) {
    *device = duovec::standin::current_device();
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, char const** text) {
    *text = duovec::standin::text_of(static_cast<cudaError_t>(error));
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
    return static_cast<CUresult>(cudaMemGetInfo(free, total));
}

CUresult cuModuleLoadData(CUmodule* module, void const* image) {
    *module = nullptr;
    std::string const entry = ".visible .entry " + std::string(kEntry) + "(";
    if (std::string_view(static_cast<char const*>(image)).find(entry) == std::string_view::npos) {
        return CUDA_ERROR_INVALID_PTX;
    }
    *module = static_cast<CUmodule>(handle_of(kEntry));
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, char const* name) {
    if (name != kEntry) {
        return CUDA_ERROR_NOT_FOUND;
    }
    *function = static_cast<CUfunction>(handle_of(kEntry));
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction, unsigned rows, unsigned blocks, unsigned, unsigned, unsigned,
                        unsigned, unsigned, CUstream stream, void** parameters, void**) {
    auto const& run = *static_cast<KernelArguments const*>(parameters[0]);
    Operation const kernel =
        operation_of(run, static_cast<std::int32_t>(rows), static_cast<std::int32_t>(blocks));
    return static_cast<CUresult>(duovec::standin::submit(stream, kernel));
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    *status = duovec::standin::is_capturing(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                    : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
    return static_cast<CUresult>(cudaStreamSynchronize(stream));
}

#pragma GCC visibility pop
}
