// All that the stand-in for the CUDA runtime knows: memory, streams, graphs, events, faults.
//
// Thread safety: everything is guarded by RuntimeState::mutex; functions of RuntimeState expect it
// held unless they say otherwise. Bodies of operations run without it. Ownership: the state is
// never destroyed, since streams' threads may run while the process ends. Preconditions: a broken
// contract aborts.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "testing/standin.h"
#include "testing/standin_faults.h"

/// Found without a call of the loader, which the thread sanitizer cannot follow in libraries that
/// are loaded late.
#define STANDIN_THREAD_LOCAL thread_local __attribute__((tls_model("initial-exec")))

namespace duovec::standin {

constexpr int kDevices = 2;
constexpr int kNoDevice = -1;
constexpr std::size_t kDeviceBytes = std::size_t{8} << 30;
/// Makes a device address one that no host code can use: not canonical.
constexpr std::uintptr_t kFlipped = 0x2a50'0000'0000'0000;

struct Allocation {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    void* memory = nullptr;
    int device = kNoDevice;
    long number = 0;
};

struct StandinEvent;
struct StandinGraph;

/// An operation on a stream's queue.
struct QueuedOperation {
    Operation operation;
    std::vector<void*> memory;
    std::shared_ptr<StandinGraph> exec;
    /// Set for the recording of an event, which has no body.
    std::shared_ptr<StandinEvent> event;
    long request = 0;
    /// Of the host memory that it reads, when it was submitted; nothing when earlier work writes
    /// it.
    std::optional<std::uint64_t> digest;
    bool nan = false;
    bool sticky = false;
};

struct Capture {
    std::thread::id thread;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    bool invalidated = false;
    std::vector<Operation> operations;
};

struct StandinStream {
    int device = 0;
    int priority = 0;
    /// The first one is running or about to; it stays until it has finished.
    std::deque<QueuedOperation> queue;
    long submitted = 0;
    long finished = 0;
    bool stopping = false;
    std::optional<Capture> capture;
    std::condition_variable wake;
    std::thread thread;
};

struct StandinEvent {
    int device = 0;
    bool timed = true;
    /// Who waits for it sleeps.
    bool blocking = false;
    bool captured = false;
    long requested = 0;
    long completed = 0;
    std::chrono::steady_clock::time_point at;
};

/// As it was recorded, or executable.
struct StandinGraph {
    int device = 0;
    std::vector<Operation> operations;
};

/// Living objects by handle. Handles are never used twice and crash host code that follows them.
template <typename Object>
class Table {
 public:
    Table(std::uintptr_t first, char const* kind) : next_(first), kind_(kind) {}

    void* add(std::shared_ptr<Object> object) {
        next_ += 16;
        objects_[next_] = std::move(object);
        return reinterpret_cast<void*>(next_);
    }

    std::shared_ptr<Object> find(void const* handle, char const* what) const {
        auto const found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
        if (found == objects_.end()) {
            contract(std::string(what) + ": no " + kind_ + " or a destroyed one");
        }
        return found->second;
    }

    void remove(void const* handle) { objects_.erase(reinterpret_cast<std::uintptr_t>(handle)); }

    std::map<std::uintptr_t, std::shared_ptr<Object>> const& all() const { return objects_; }

 private:
    std::uintptr_t next_;
    char const* kind_;
    std::map<std::uintptr_t, std::shared_ptr<Object>> objects_;
};

class RuntimeState {
 public:
    static RuntimeState& instance();

    std::mutex mutex;
    /// Told when work has finished or the device has failed.
    std::condition_variable done;
    Faults faults;
    std::map<std::string, long> counts;
    long extra_live = 0;
    /// Memory of each device that is taken beside the allocations.
    long reserved[kDevices] = {};
    /// Of each device: for ever, once it is not cudaSuccess.
    cudaError_t sticky[kDevices] = {};
    /// Of CUDA, as it writes them: 1000 for each major version.
    long runtime_version = CUDART_VERSION;
    std::map<std::uintptr_t, Allocation> allocations;
    Table<StandinStream> streams{kFlipped + (std::uintptr_t{1} << 48), "stream"};
    Table<StandinEvent> events{kFlipped + (std::uintptr_t{2} << 48), "event"};
    Table<StandinGraph> graphs{kFlipped + (std::uintptr_t{3} << 48), "graph"};
    Table<StandinGraph> execs{kFlipped + (std::uintptr_t{4} << 48), "executable graph"};

    /// What every call gives that needs this device, or the driver alone.
    cudaError_t device_error(int device) const;
    /// The newest CUDA that the driver knows; 0 without a driver.
    long driver_version() const;

    std::size_t used_bytes(int device) const;
    /// Null when there is no memory left.
    void* allocate(std::size_t bytes, int device);
    /// Aborts when `address` is none of them or is in use.
    void free(void* address, int device_or_none, char const* what);

    std::shared_ptr<StandinStream> find_stream(cudaStream_t stream, char const* what) const;
    /// As find_stream; its device must be the current one.
    std::shared_ptr<StandinStream> find_usable(cudaStream_t stream, char const* what) const;
    std::shared_ptr<StandinStream> start_stream(int device, int priority);
    void submit(StandinStream& stream, Operation operation,
                std::shared_ptr<StandinGraph> exec = nullptr);
    void submit_event(StandinStream& stream, std::shared_ptr<StandinEvent> event);

    /// Aborts when unfinished work satisfies the condition; a failed device drops its work.
    template <typename Condition>
    void expect_no_work(Condition const& condition, std::string const& what) const {
        for (auto const& [handle, stream] : streams.all()) {
            for (QueuedOperation const& queued : stream->queue) {
                if (sticky[stream->device] == cudaSuccess && condition(queued)) {
                    contract(what + " while unfinished work uses it (" + queued.operation.name +
                             ")");
                }
            }
        }
    }

    /// For calls that no thread may make while it captures: whether they are refused. `any_thread`
    /// is for those that a capture in global mode forbids to all threads.
    bool breaks_capture(bool any_thread);

 private:
    RuntimeState();

    Allocation const* holder(std::uintptr_t address) const;
    int locate(MemoryRange& range, std::string const& name) const;
    void resolve(StandinStream const& stream, QueuedOperation& queued, bool replayed) const;
    void expect_no_conflict(StandinStream const& stream, QueuedOperation const& queued) const;
    void watch_host_memory(StandinStream const& stream, QueuedOperation& queued) const;
    std::chrono::microseconds pause(Operation const& operation) const;
    void push(StandinStream& stream, QueuedOperation queued);
    void run_queue(StandinStream& stream);
    void finish(StandinStream& stream);

    /// Memory freed after the device failed: what ran at that moment may still use it.
    std::vector<void*> abandoned_;
    long allocations_made_ = 0;
};

/// Of this thread.
int& current_device_slot();

// What the exported functions are made of: the lock and the error they give.

using Lock = std::unique_lock<std::mutex>;

inline RuntimeState& state() { return RuntimeState::instance(); }

/// Of this thread.
cudaError_t& last_error();

inline cudaError_t remember(cudaError_t error) {
    if (error != cudaSuccess) {
        last_error() = error;
    }
    return error;
}

/// Runs `body` with the state locked unless the device cannot be used.
template <typename Body>
cudaError_t call(Body const& body) {
    Lock lock(state().mutex);
    cudaError_t const error = state().device_error(current_device_slot());
    return remember(error == cudaSuccess ? body(lock) : error);
}

/// As call, for what destroys: it happens although the device has failed.
template <typename Body>
cudaError_t destroy(Body const& body) {
    Lock lock(state().mutex);
    cudaError_t const error = body(lock);
    cudaError_t const failed = state().device_error(current_device_slot());
    return remember(failed == cudaSuccess ? error : failed);
}

/// Until the condition holds or the device has failed.
template <typename Condition>
cudaError_t wait(Lock& lock, Condition const& condition) {
    cudaError_t const& sticky = state().sticky[current_device_slot()];
    state().done.wait(lock, [&] { return sticky != cudaSuccess || condition(); });
    return sticky;
}

}  // namespace duovec::standin
