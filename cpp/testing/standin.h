// What the stand-in for the CUDA runtime offers to the stand-ins for TensorRT: work on streams,
// scripted faults, counters, and the end of a test that breaks a contract.
//
// Only libcudart.so.13 defines these functions, so that both flavours share one state.
// Thread safety: all functions may be called from all threads. Ownership: an Operation is copied;
// who destroys a context calls expect_unused first. Preconditions: a broken contract aborts.

#pragma once

#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "testing/standin_kernel.h"

namespace duovec::standin {

/// Ends the process: what the caller did is undefined with the real libraries.
[[noreturn]] inline void contract(std::string const& what) {
    std::fprintf(stderr, "duovec stand-in: contract: %s\n", what.c_str());
    std::abort();
}

/// Addresses handed to TensorRT must be multiples of it.
constexpr std::size_t kAlignment = 256;

enum class MemoryKind { kDevice, kHost };

/// Memory that an operation uses.
struct MemoryRange {
    void const* address = nullptr;
    std::size_t bytes = 0;
    bool written = false;
    MemoryKind kind = MemoryKind::kDevice;
    std::string what;
    // Filled in when the operation is submitted.
    /// Of the allocation.
    long allocation = 0;
    /// Where the bytes are for host code; of host memory the address itself.
    void* memory = nullptr;
    bool is_host = false;
};

/// An execution context as streams and graphs see it.
struct ContextUse {
    std::string name;
    int device = 0;
    /// Executable graphs that captured it; guarded by the CUDA stand-in's mutex.
    int graphs = 0;
};

/// The same run on a real GPU: so many kernels one after the other, of which the last writes.
struct KernelRun {
    KernelArguments arguments;
    int kernels = 1;
};

/// Work of a stream. `body` runs on the stream's thread, with an address that host code can use
/// for each range; `nan` asks for a result that is not a number.
struct Operation {
    using Function = std::function<void(std::vector<void*> const& memory, bool nan)>;

    std::string name;
    std::vector<MemoryRange> ranges;
    std::shared_ptr<ContextUse> context;
    bool execution = false;
    /// It uses an address that is not there: the device is lost when it runs.
    bool illegal = false;
    Function body;
    /// Of an execution whose types the kernel knows.
    std::optional<KernelRun> kernels;
};

#pragma GCC visibility push(default)

/// Whether the fault is set, its value, and whether its countdown ends with this call.
bool is_set(char const* fault);
long value_of(char const* fault, long otherwise);
bool fires(char const* fault);

void add_count(char const* what);
void add_live(long objects);

/// What every call gives that needs a working device.
cudaError_t device_error();
char const* text_of(cudaError_t error);
int current_device();

/// Takes memory of the device for what the library keeps there, or gives it back.
void reserve(int device, long bytes);

/// Aborts unless `stream` may be given work by this thread: it lives, on the current device.
void expect_usable(cudaStream_t stream, char const* what);
bool is_capturing(cudaStream_t stream);
void invalidate_capture(cudaStream_t stream);
/// A wait for the whole device ends every capture there, whichever thread began it.
void disturb_captures(int device);
/// Queues the operation, or records it while the stream captures.
cudaError_t submit(cudaStream_t stream, Operation const& operation);
cudaError_t synchronize(cudaStream_t stream);

/// Aborts when a living executable graph captured the context.
void expect_not_captured(ContextUse const& context, char const* what);
/// Aborts when the context is in use by unfinished work or by a living executable graph.
void expect_unused(ContextUse const& context, char const* what);

#pragma GCC visibility pop

}  // namespace duovec::standin

extern "C" {
#pragma GCC visibility push(default)
/// Objects that were created and not destroyed.
long duovec_standin_live();
/// How often something succeeded: enqueue, graph_launch, capture, malloc, host_alloc, copy,
/// compile, event, urgent (an execution on a stream of high priority); and how often somebody
/// waited without giving his core away (spin), or asleep (sleep).
long duovec_standin_count(char const* what);
/// Adds faults, as DUOVEC_STANDIN_FAULTS names them; an empty text clears all.
void duovec_standin_fault(char const* spec);
/// From now on the runtime is that of this version of CUDA.
void duovec_standin_runtime_version(long version);
#pragma GCC visibility pop
}
