// What standin.h promises, on a real GPU: linked to the stand-in for TensorRT in place of the
// stand-in for CUDA. Its runs are kernels on the stream and the memory that a session gives it, so
// the session's capture, streams, copies and errors are the real driver's.
//
// The driver is opened here; the runtime is whichever the caller has. Both use the same context of
// a device.
//
// Thread safety: as standin.h. Ownership: the kernel is loaded once for each device and stays.
// Preconditions: the calling thread has used its device.

#include <cuda.h>
#include <dlfcn.h>

#include <map>
#include <mutex>

#include "testing/standin.h"
#include "testing/standin_faults.h"

// The text of the kernel, which the driver compiles. Paths are those of the repository's root.
asm(R"(
    .section .rodata
    .global duovec_standin_kernel
    .hidden duovec_standin_kernel
duovec_standin_kernel:
    .incbin "scripts/gpu_check/standin_kernel.ptx"
    .byte 0
    .previous
)");

extern "C" __attribute__((visibility("hidden"))) char const duovec_standin_kernel[];

#define STANDIN_DRIVER_FUNCTIONS(X) \
    X(cuCtxGetDevice)               \
    X(cuGetErrorString)             \
    X(cuLaunchKernel)               \
    X(cuMemGetInfo)                 \
    X(cuModuleGetFunction)          \
    X(cuModuleLoadData)             \
    X(cuStreamIsCapturing)          \
    X(cuStreamSynchronize)

namespace duovec::standin {
namespace {

/// So much keeps a few blocks on each multiprocessor, as the kernels of an encoder do: a large
/// batch fills the GPU. No kernel needs to ask for more.
constexpr unsigned kSharedBytes = 48U << 10;

/// The numbers are the same in the driver and in the runtime.
cudaError_t status_of(CUresult result) { return static_cast<cudaError_t>(result); }

struct Driver {
#define STANDIN_FIELD(name) decltype(&::name) name = nullptr;
    STANDIN_DRIVER_FUNCTIONS(STANDIN_FIELD)
#undef STANDIN_FIELD

    Driver() {
        void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            contract("there is no driver, and yet the runtime found a GPU");
        }
// The second step expands names that the header defines as macros of others.
#define STANDIN_TEXT(name) #name
#define STANDIN_FIND(name) find(library, STANDIN_TEXT(name), this->name);
        STANDIN_DRIVER_FUNCTIONS(STANDIN_FIND)
#undef STANDIN_FIND
#undef STANDIN_TEXT
    }

    template <typename Function>
    static void find(void* library, char const* name, Function& function) {
        function = reinterpret_cast<Function>(dlsym(library, name));
        if (function == nullptr) {
            contract(std::string("the driver has no ") + name);
        }
    }
};

Driver const& driver() {
    static Driver const* const found = new Driver();
    return *found;
}

/// Faults and kernels of the process; never destroyed, since threads may run at its end.
struct DriverState {
    std::mutex mutex;
    Faults faults;
    std::map<int, CUfunction> kernels;
};

DriverState& shared() {
    static DriverState* const all = [] {
        auto* const made = new DriverState();
        made->faults.add(Faults::of_environment());
        return made;
    }();
    return *all;
}

CUresult find_kernel(CUfunction& kernel) {
    int const device = current_device();
    std::lock_guard const lock(shared().mutex);
    CUfunction& known = shared().kernels[device];
    if (known == nullptr) {
        CUmodule module = nullptr;
        CUresult const loaded = driver().cuModuleLoadData(&module, duovec_standin_kernel);
        if (loaded != CUDA_SUCCESS) {
            return loaded;
        }
        CUresult const found = driver().cuModuleGetFunction(&known, module, "duovec_standin_run");
        if (found != CUDA_SUCCESS) {
            return found;
        }
    }
    kernel = known;
    return CUDA_SUCCESS;
}

CUresult launch(CUfunction kernel, KernelRun run, cudaStream_t stream) {
    KernelArguments& arguments = run.arguments;
    auto const rows = static_cast<unsigned>(arguments.rows);
    auto const blocks = static_cast<unsigned>((arguments.length + kBlockTokens - 1) / kBlockTokens);
    CUresult result = CUDA_SUCCESS;
    for (int number = 1; number <= run.kernels && result == CUDA_SUCCESS; ++number) {
        arguments.writes = number == run.kernels ? 1 : 0;
        void* parameters[] = {&arguments};
        result = driver().cuLaunchKernel(kernel, rows, blocks, 1, kBlockTokens, 1, 1, kSharedBytes,
                                         stream, parameters, nullptr);
    }
    return result;
}

}  // namespace

bool is_set(char const* fault) {
    std::lock_guard const lock(shared().mutex);
    return shared().faults.find(fault).has_value();
}

long value_of(char const* fault, long otherwise) {
    std::lock_guard const lock(shared().mutex);
    return shared().faults.find(fault).value_or(otherwise);
}

bool fires(char const* fault) {
    std::lock_guard const lock(shared().mutex);
    return shared().faults.fires(fault);
}

// Nobody asks for counts here.
void add_count(char const*) {}
void add_live(long) {}
void reserve(int, long) {}

// A question that a lost device answers with its error.
void disturb_captures(int) {}

cudaError_t device_error() {
    std::size_t free = 0;
    std::size_t total = 0;
    return status_of(driver().cuMemGetInfo(&free, &total));
}

char const* text_of(cudaError_t error) {
    char const* text = nullptr;
    driver().cuGetErrorString(static_cast<CUresult>(error), &text);
    return text == nullptr ? "an unknown error" : text;
}

int current_device() {
    CUdevice device = -1;
    CUresult const result = driver().cuCtxGetDevice(&device);
    if (result != CUDA_SUCCESS) {
        contract("the calling thread has no device");
    }
    return device;
}

void expect_usable(cudaStream_t stream, char const* what) {
    if (stream == nullptr) {
        contract(std::string(what) + " uses the default stream");
    }
}

bool is_capturing(cudaStream_t stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    driver().cuStreamIsCapturing(stream, &status);
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// The driver does this by itself where a call breaks a capture.
void invalidate_capture(cudaStream_t) {}

cudaError_t submit(cudaStream_t stream, Operation const& operation) {
    if (!operation.execution) {
        return cudaSuccess;
    }
    if (!operation.kernels) {
        contract("on a GPU the stand-in runs plans with dense vectors and weights of tokens only");
    }
    KernelRun run = *operation.kernels;
    if (!is_capturing(stream) && fires("sticky")) {
        run.arguments.dense = nullptr;
    }
    run.arguments.busy_ns = value_of("run_us", 0) * 1000 / run.kernels;
    CUfunction kernel = nullptr;
    CUresult const found = find_kernel(kernel);
    return status_of(found == CUDA_SUCCESS ? launch(kernel, run, stream) : found);
}

cudaError_t synchronize(cudaStream_t stream) {
    return status_of(driver().cuStreamSynchronize(stream));
}

// Which work and which graphs use a context only the stand-in for CUDA knows.
void expect_not_captured(ContextUse const&, char const*) {}
void expect_unused(ContextUse const&, char const*) {}

}  // namespace duovec::standin
