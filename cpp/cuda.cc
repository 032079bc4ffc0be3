#include "cuda.h"

#include <dlfcn.h>

namespace duovec {
namespace {

template <typename Function>
void find(void* library, char const* name, std::string const& path, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) {
        throw Error(ErrorKind::kLibrary, path + " has no function " + name);
    }
}

}  // namespace

ErrorKind kind_of(cudaError_t status) {
    switch (status) {
        case cudaErrorMemoryAllocation:
            return ErrorKind::kOutOfMemory;
        case cudaErrorNoDevice:
        case cudaErrorInvalidDevice:
        case cudaErrorInsufficientDriver:
        case cudaErrorDevicesUnavailable:
        case cudaErrorDeviceUninitialized:
        case cudaErrorSystemNotReady:
        case cudaErrorSystemDriverMismatch:
        case cudaErrorCompatNotSupportedOnDevice:
            return ErrorKind::kDevice;
        // CUDA's documentation says of each: the process must be ended to use CUDA again.
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
        case cudaErrorECCUncorrectable:
        case cudaErrorNvlinkUncorrectable:
        case cudaErrorContained:
        case cudaErrorTensorMemoryLeak:
        case cudaErrorExternalDevice:
        case cudaErrorCudartUnloading:
        case cudaErrorContextIsDestroyed:
        case cudaErrorUnknown:
            return ErrorKind::kPoisoned;
        default:
            return ErrorKind::kTransient;
    }
}

Cuda::Cuda(std::string const& path) {
    // Never closed: its threads outlive any owner.
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        char const* const reason = dlerror();
        throw Error(ErrorKind::kLibrary,
                    "cannot open " + path + ": " + (reason == nullptr ? "no reason" : reason));
    }
// The second step expands names that the header defines as macros of others.
#define DUOVEC_TEXT(name) #name
#define DUOVEC_FIND(name) find(library, DUOVEC_TEXT(name), path, functions_.name);
    DUOVEC_CUDA_FUNCTIONS(DUOVEC_FIND)
#undef DUOVEC_FIND
#undef DUOVEC_TEXT
}

void Cuda::use(std::int32_t device) const {
    int count = 0;
    check(functions_.cudaGetDeviceCount(&count), "count the GPUs");
    if (device < 0 || device >= count) {
        throw Error(ErrorKind::kDevice, "there is no GPU " + std::to_string(device) +
                                            ": the driver shows " + std::to_string(count));
    }
    check(functions_.cudaSetDevice(device), "use the GPU");
}

std::size_t Cuda::free_bytes() const {
    std::size_t free = 0;
    std::size_t total = 0;
    check(functions_.cudaMemGetInfo(&free, &total), "read the device's memory");
    return free;
}

std::string Cuda::describe(cudaError_t status) const {
    char const* const name = functions_.cudaGetErrorName(status);
    char const* const text = functions_.cudaGetErrorString(status);
    return std::string(name == nullptr ? "?" : name) + ", " + (text == nullptr ? "?" : text);
}

void Cuda::fail(cudaError_t status, char const* doing) const {
    static_cast<void>(functions_.cudaGetLastError());
    throw Error(kind_of(status), std::string("cannot ") + doing + ": " + describe(status));
}

DeviceMemory allocate_device(Cuda const& cuda, std::size_t bytes, char const* what) {
    void* memory = nullptr;
    std::string const doing =
        "allocate " + std::to_string(bytes) + " bytes of device memory for " + std::string(what);
    cuda.check(cuda.call().cudaMalloc(&memory, bytes), doing.c_str());
    return {cuda, memory};
}

PinnedMemory allocate_pinned(Cuda const& cuda, std::size_t bytes, char const* what) {
    void* memory = nullptr;
    std::string const doing =
        "allocate " + std::to_string(bytes) + " bytes of pinned memory for " + std::string(what);
    cuda.check(cuda.call().cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), doing.c_str());
    return {cuda, memory};
}

CudaStream create_stream(Cuda const& cuda, StreamPriority priority) {
    int least = 0;
    int greatest = 0;
    cuda.check(cuda.call().cudaDeviceGetStreamPriorityRange(&least, &greatest),
               "read the range of priorities");
    int const chosen = priority == StreamPriority::kGreatest ? greatest : least;
    cudaStream_t stream = nullptr;
    cuda.check(cuda.call().cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, chosen),
               "create a stream");
    return {cuda, stream};
}

CudaEvent create_event(Cuda const& cuda, unsigned flags) {
    cudaEvent_t event = nullptr;
    cuda.check(cuda.call().cudaEventCreateWithFlags(&event, flags), "create an event");
    return {cuda, event};
}

}  // namespace duovec
