// The stand-in for the CUDA runtime: libcudart.so.13 for tests without a GPU. Device memory is host
// memory whose addresses host code cannot use, and each stream is a thread.
//
// Thread safety: all functions may be called from all threads. Ownership: as with the real library;
// duovec_standin_live() counts what lives. Preconditions: what is undefined with the real library
// ends the process with a line on stderr.

#include <algorithm>
#include <cstring>

#include "testing/standin_state.h"

namespace duovec::standin {

cudaError_t& last_error() {
    STANDIN_THREAD_LOCAL cudaError_t error = cudaSuccess;
    return error;
}

}  // namespace duovec::standin

using namespace duovec::standin;

namespace {

// Reads the environment when the library is loaded, not at the first call.
[[maybe_unused]] RuntimeState const& loaded = RuntimeState::instance();

/// Ten times the compute capability of each device, unless a test asks for another.
constexpr long kCapability = 90;

/// The least is 0, and smaller numbers go first.
constexpr int kGreatestPriority = -5;

/// Gives memory of the device, or of the host when that is kNoDevice.
cudaError_t allocate(void** pointer, std::size_t bytes, int device, char const* count) {
    *pointer = nullptr;
    if (state().breaks_capture(true)) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (bytes > 0) {
        *pointer = state().allocate(bytes, device);
        if (*pointer == nullptr) {
            return cudaErrorMemoryAllocation;
        }
    }
    ++state().counts[count];
    return cudaSuccess;
}

cudaError_t free_memory(void* pointer, int device, char const* what) {
    if (state().breaks_capture(true)) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (pointer != nullptr) {
        state().free(pointer, device, what);
    }
    return cudaSuccess;
}

Operation copy_operation(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind) {
    Operation copy;
    copy.name = "copy";
    if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost) {
        contract("copies are between the host and a device");
    }
    bool const in = kind == cudaMemcpyHostToDevice;
    MemoryKind const source = in ? MemoryKind::kHost : MemoryKind::kDevice;
    MemoryKind const target = in ? MemoryKind::kDevice : MemoryKind::kHost;
    copy.ranges = {{to, bytes, true, target, "target"}, {from, bytes, false, source, "source"}};
    copy.body = [bytes](std::vector<void*> const& memory, bool) {
        std::memmove(memory[0], memory[1], bytes);
    };
    return copy;
}

char const* name_of(cudaError_t error) {
    static constexpr std::pair<cudaError_t, char const*> kNames[] = {
#define STANDIN_ERROR(name) {name, #name}
        STANDIN_ERROR(cudaErrorInvalidValue),
        STANDIN_ERROR(cudaErrorMemoryAllocation),
        STANDIN_ERROR(cudaErrorInsufficientDriver),
        STANDIN_ERROR(cudaErrorNoDevice),
        STANDIN_ERROR(cudaErrorInvalidDevice),
        STANDIN_ERROR(cudaErrorInvalidResourceHandle),
        STANDIN_ERROR(cudaErrorDevicesUnavailable),
        STANDIN_ERROR(cudaErrorIllegalState),
        STANDIN_ERROR(cudaErrorNotReady),
        STANDIN_ERROR(cudaErrorIllegalAddress),
        STANDIN_ERROR(cudaErrorLaunchOutOfResources),
        STANDIN_ERROR(cudaErrorStreamCaptureUnsupported),
        STANDIN_ERROR(cudaErrorStreamCaptureInvalidated),
        STANDIN_ERROR(cudaErrorStreamCaptureWrongThread),
        STANDIN_ERROR(cudaErrorCapturedEvent),
#undef STANDIN_ERROR
    };
    auto const* const found =
        std::ranges::find(kNames, error, [](auto const& one) { return one.first; });
    return found == std::end(kNames) ? "cudaErrorUnknown" : found->second;
}

/// As call, for what is asked of another device than the current one.
template <typename Body>
cudaError_t call_for(int device, Body const& body) {
    Lock lock(state().mutex);
    cudaError_t const error = device < 0 || device >= kDevices ? cudaErrorInvalidDevice
                              : state().faults.find("sick_device") == device
                                  ? cudaErrorDevicesUnavailable
                                  : state().device_error(device);
    return remember(error == cudaSuccess ? body(lock) : error);
}

}  // namespace

long duovec_standin_live() {
    Lock const lock(state().mutex);
    std::size_t const live = state().allocations.size() + state().streams.all().size() +
                             state().events.all().size() + state().graphs.all().size() +
                             state().execs.all().size();
    return static_cast<long>(live) + state().extra_live;
}

long duovec_standin_count(char const* what) {
    static constexpr std::string_view kKnown[] = {"enqueue",    "graph_launch", "capture", "malloc",
                                                  "host_alloc", "copy",         "compile", "urgent",
                                                  "event",      "spin",         "sleep"};
    if (std::ranges::find(kKnown, what) == std::end(kKnown)) {
        contract(std::string("nothing counts '") + what + "'");
    }
    Lock const lock(state().mutex);
    return state().counts[what];
}

void duovec_standin_fault(char const* spec) {
    Lock const lock(state().mutex);
    state().faults.add(spec);
}

// The driver and its devices.

cudaError_t cudaDriverGetVersion(int* version) {
    Lock const lock(state().mutex);
    *version = static_cast<int>(state().driver_version());
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    Lock const lock(state().mutex);
    *version = static_cast<int>(state().runtime_version);
    return cudaSuccess;
}

void duovec_standin_runtime_version(long version) {
    Lock const lock(state().mutex);
    state().runtime_version = version;
}

cudaError_t cudaGetDeviceCount(int* count) {
    Lock const lock(state().mutex);
    cudaError_t const error = state().device_error(kNoDevice);
    *count = error == cudaSuccess ? kDevices : 0;
    return remember(error);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return call_for(device, [&](Lock&) {
        *properties = {};
        std::strncpy(properties->name, "duovec stand-in", sizeof properties->name - 1);
        properties->name[0] = device > 0 && state().faults.find("unlike_devices") ? 'D' : 'd';
        properties->totalGlobalMem = kDeviceBytes;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    return call_for(device, [&](Lock&) {
        long const capability = state().faults.find("capability").value_or(kCapability);
        switch (attribute) {
            case cudaDevAttrComputeCapabilityMajor:
                *value = static_cast<int>(capability / 10);
                return cudaSuccess;
            case cudaDevAttrComputeCapabilityMinor:
                *value = static_cast<int>(capability % 10);
                return cudaSuccess;
            case cudaDevAttrMultiProcessorCount:
                *value = 4;
                return cudaSuccess;
            default:
                contract("attribute " + std::to_string(attribute) + " is not provided");
        }
    });
}

char const* cudaGetErrorName(cudaError_t error) { return name_of(error); }

char const* cudaGetErrorString(cudaError_t) { return "a text of the stand-in"; }

cudaError_t cudaGetLastError() {
    Lock const lock(state().mutex);
    cudaError_t const error = std::exchange(last_error(), cudaSuccess);
    cudaError_t const sticky = state().sticky[current_device_slot()];
    return sticky == cudaSuccess ? error : sticky;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    return call([&](Lock&) {
        *total = kDeviceBytes;
        *free = kDeviceBytes - state().used_bytes(current_device_slot());
        return cudaSuccess;
    });
}

cudaError_t cudaSetDevice(int device) {
    return call_for(device, [&](Lock&) {
        current_device_slot() = device;
        return cudaSuccess;
    });
}

// Memory.

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    return call([&](Lock&) {
        std::optional<long> const limit = state().faults.find("malloc_fails_over");
        if (limit && bytes > static_cast<std::size_t>(*limit)) {
            *pointer = nullptr;
            return cudaErrorMemoryAllocation;
        }
        return allocate(pointer, bytes, current_device_slot(), "malloc");
    });
}

cudaError_t cudaFree(void* pointer) {
    return destroy([&](Lock&) { return free_memory(pointer, current_device_slot(), "cudaFree"); });
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned int) {
    return call([&](Lock&) {
        if (state().faults.find("host_alloc_fails")) {
            *pointer = nullptr;
            return cudaErrorMemoryAllocation;
        }
        return allocate(pointer, bytes, kNoDevice, "host_alloc");
    });
}

cudaError_t cudaFreeHost(void* pointer) {
    return destroy([&](Lock&) { return free_memory(pointer, kNoDevice, "cudaFreeHost"); });
}

cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return call([&](Lock&) {
        auto const found = state().find_usable(stream, "cudaMemcpyAsync");
        if (state().faults.fires("copy_fails")) {
            return cudaErrorInvalidValue;
        }
        if (bytes > 0) {
            state().submit(*found, copy_operation(to, from, bytes, kind));
        }
        ++state().counts["copy"];
        return cudaSuccess;
    });
}

// Streams.

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return call([&](Lock&) {
        *least = 0;
        *greatest = kGreatestPriority;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
    return call([&](Lock&) {
        *stream = nullptr;
        if (flags != cudaStreamNonBlocking) {
            contract("a stream is not created non-blocking");
        }
        if (state().faults.find("stream_fails")) {
            return cudaErrorMemoryAllocation;
        }
        if (priority > 0 || priority < kGreatestPriority) {
            contract("a stream's priority is out of the device's range");
        }
        auto const made = state().start_stream(current_device_slot(), priority);
        *stream = static_cast<cudaStream_t>(state().streams.add(made));
        return cudaSuccess;
    });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return destroy([&](Lock& lock) {
        auto const found = state().find_stream(stream, "cudaStreamDestroy");
        bool const failed = state().sticky[found->device] != cudaSuccess;
        if (found->capture && !failed) {
            contract("a stream is destroyed while it captures");
        }
        if (!found->queue.empty() && !failed) {
            contract("a stream is destroyed with unfinished work");
        }
        state().streams.remove(stream);
        found->stopping = true;
        found->wake.notify_all();
        lock.unlock();
        found->thread.join();
        lock.lock();
        return cudaSuccess;
    });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return call([&](Lock& lock) {
        auto const found = state().find_stream(stream, "cudaStreamSynchronize");
        if (found->capture) {
            found->capture->invalidated = true;
        }
        if (state().breaks_capture(false) || found->capture) {
            return cudaErrorStreamCaptureUnsupported;
        }
        // By the device's usual flags.
        ++state().counts["spin"];
        long const target = found->submitted;
        return wait(lock, [&] { return found->finished >= target; });
    });
}
