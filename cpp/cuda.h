// The CUDA runtime, opened at run time: the functions that sessions call, owners of what they
// create, and which errors mean what.
//
// Thread safety: a Cuda is immutable once opened; owners belong to one thread. Ownership: each
// owner destroys what it holds and must not outlive its Cuda; the library itself is never closed.
// Preconditions: the device is current on the calling thread (Cuda::use).

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "error.h"

/// Every function that is called; a library that lacks one of them is refused. All are in CUDA 12.0
/// too, with the same arguments.
#define DUOVEC_CUDA_FUNCTIONS(X)        \
    X(cudaDeviceGetStreamPriorityRange) \
    X(cudaEventCreateWithFlags)         \
    X(cudaEventDestroy)                 \
    X(cudaEventElapsedTime)             \
    X(cudaEventRecord)                  \
    X(cudaEventSynchronize)             \
    X(cudaFree)                         \
    X(cudaFreeHost)                     \
    X(cudaGetDeviceCount)               \
    X(cudaGetErrorName)                 \
    X(cudaGetErrorString)               \
    X(cudaGetLastError)                 \
    X(cudaGraphDestroy)                 \
    X(cudaGraphExecDestroy)             \
    X(cudaGraphInstantiateWithFlags)    \
    X(cudaGraphLaunch)                  \
    X(cudaHostAlloc)                    \
    X(cudaMalloc)                       \
    X(cudaMemGetInfo)                   \
    X(cudaMemcpyAsync)                  \
    X(cudaSetDevice)                    \
    X(cudaStreamBeginCapture)           \
    X(cudaStreamCreateWithPriority)     \
    X(cudaStreamDestroy)                \
    X(cudaStreamEndCapture)             \
    X(cudaStreamSynchronize)

namespace duovec {

struct CudaFunctions {
#define DUOVEC_FIELD(name) decltype(&::name) name = nullptr;
    DUOVEC_CUDA_FUNCTIONS(DUOVEC_FIELD)
#undef DUOVEC_FIELD
};

/// What an error of CUDA asks for. Pure.
ErrorKind kind_of(cudaError_t status);

class Cuda {
 public:
    /// Opens that file; a name without a folder is looked for by the loader. Throws
    /// Error(kLibrary).
    explicit Cuda(std::string const& path);

    CudaFunctions const& call() const noexcept { return functions_; }

    /// Makes `device` the calling thread's. Throws Error(kDevice) when there is no such device.
    void use(std::int32_t device) const;

    /// Memory of the current device that nobody has taken.
    std::size_t free_bytes() const;

    /// Throws an Error of the status's kind: "cannot <doing>: <name>, <text>". Clears the thread's
    /// last error, so that nobody else reports it.
    void check(cudaError_t status, char const* doing) const {
        if (status != cudaSuccess) [[unlikely]] {
            fail(status, doing);
        }
    }

    /// The name and the text of an error, "cudaErrorNoDevice, no CUDA-capable device is detected".
    std::string describe(cudaError_t status) const;

 private:
    [[noreturn]] void fail(cudaError_t status, char const* doing) const;

    CudaFunctions functions_;
};

/// Owns what one of CUDA's functions created; `Destroy` is the function that undoes it.
template <typename Handle, auto Destroy>
class CudaOwner {
 public:
    CudaOwner() = default;
    CudaOwner(Cuda const& cuda, Handle handle) noexcept : cuda_(&cuda), handle_(handle) {}
    CudaOwner(CudaOwner&& from) noexcept
        : cuda_(from.cuda_), handle_(std::exchange(from.handle_, Handle{})) {}
    CudaOwner& operator=(CudaOwner&& from) noexcept {
        std::swap(cuda_, from.cuda_);
        std::swap(handle_, from.handle_);
        return *this;
    }
    CudaOwner(CudaOwner const&) = delete;
    CudaOwner& operator=(CudaOwner const&) = delete;
    ~CudaOwner() {
        if (handle_ != Handle{}) {
            // On a lost device nothing can be freed, and nothing needs to be.
            static_cast<void>((cuda_->call().*Destroy)(handle_));
        }
    }

    Handle get() const noexcept { return handle_; }

 private:
    Cuda const* cuda_ = nullptr;
    Handle handle_{};
};

using DeviceMemory = CudaOwner<void*, &CudaFunctions::cudaFree>;
using PinnedMemory = CudaOwner<void*, &CudaFunctions::cudaFreeHost>;
using CudaStream = CudaOwner<cudaStream_t, &CudaFunctions::cudaStreamDestroy>;
using CudaEvent = CudaOwner<cudaEvent_t, &CudaFunctions::cudaEventDestroy>;
using CudaGraph = CudaOwner<cudaGraph_t, &CudaFunctions::cudaGraphDestroy>;
using CudaGraphExec = CudaOwner<cudaGraphExec_t, &CudaFunctions::cudaGraphExecDestroy>;

/// Aligned to 256 bytes at least. Throws Error(kOutOfMemory).
DeviceMemory allocate_device(Cuda const& cuda, std::size_t bytes, char const* what);
/// Page-locked, so that copies need no staging of the driver's. Throws Error(kOutOfMemory).
PinnedMemory allocate_pinned(Cuda const& cuda, std::size_t bytes, char const* what);
/// Which work of a device begins first.
enum class StreamPriority { kLeast, kGreatest };
/// Does not wait for the default stream.
CudaStream create_stream(Cuda const& cuda, StreamPriority priority);
/// Measures time. Who waits for it keeps his core, or sleeps with cudaEventBlockingSync.
CudaEvent create_event(Cuda const& cuda, unsigned flags = cudaEventDefault);

}  // namespace duovec
