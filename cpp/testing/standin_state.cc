#include "testing/standin_state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace duovec::standin {
namespace {

/// Larger memory stays as the system gives it, so that tests need not pay for it.
constexpr std::size_t kFilledMax = std::size_t{64} << 20;
/// Floats of these bytes are not numbers, integers are negative.
constexpr int kFilling = 0xff;

bool overlap(MemoryRange const& left, MemoryRange const& right) {
    auto const first = reinterpret_cast<std::uintptr_t>(left.memory);
    auto const second = reinterpret_cast<std::uintptr_t>(right.memory);
    return first < second + right.bytes && second < first + left.bytes;
}

bool shares_memory(Operation const& operation, MemoryRange const& range) {
    return std::ranges::any_of(operation.ranges,
                               [&](MemoryRange const& one) { return overlap(one, range); });
}

/// Of the host memory that it reads.
std::uint64_t digest_of(QueuedOperation const& queued) {
    std::uint64_t digest = 0;
    for (MemoryRange const& range : queued.operation.ranges) {
        if (range.is_host && !range.written) {
            std::string_view const bytes(static_cast<char const*>(range.memory), range.bytes);
            digest = digest * 31 + std::hash<std::string_view>()(bytes);
        }
    }
    return digest;
}

std::string device_name(int device) { return "device " + std::to_string(device); }

}  // namespace

int& current_device_slot() {
    STANDIN_THREAD_LOCAL int device = 0;
    return device;
}

RuntimeState& RuntimeState::instance() {
    static RuntimeState* const state = new RuntimeState();
    return *state;
}

RuntimeState::RuntimeState() {
    faults.add(Faults::of_environment());
    if (faults.find("aborts_at_exit")) {
        std::atexit(std::abort);
    }
}

long RuntimeState::driver_version() const {
    return faults.find("no_driver") ? 0 : faults.find("driver_version").value_or(CUDART_VERSION);
}

cudaError_t RuntimeState::device_error(int device) const {
    if (driver_version() / 1000 < runtime_version / 1000) {
        return cudaErrorInsufficientDriver;
    }
    return faults.find("no_device") ? cudaErrorNoDevice
           : device == kNoDevice    ? cudaSuccess
                                    : sticky[device];
}

std::size_t RuntimeState::used_bytes(int device) const {
    auto used = static_cast<std::size_t>(reserved[device]);
    for (auto const& [address, allocation] : allocations) {
        used += allocation.device == device ? allocation.bytes : 0;
    }
    return used;
}

void* RuntimeState::allocate(std::size_t bytes, int device) {
    std::size_t const rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (device != kNoDevice && rounded > kDeviceBytes - used_bytes(device)) {
        return nullptr;
    }
    void* const memory = std::aligned_alloc(kAlignment, rounded);
    if (memory == nullptr) {
        return nullptr;
    }
    if (bytes <= kFilledMax) {
        std::memset(memory, kFilling, rounded);
    }
    auto const real = reinterpret_cast<std::uintptr_t>(memory);
    std::uintptr_t const address = device == kNoDevice ? real : real ^ kFlipped;
    allocations[address] = {address, bytes, memory, device, ++allocations_made_};
    return reinterpret_cast<void*>(address);
}

void RuntimeState::free(void* address, int device_or_none, char const* what) {
    auto const found = allocations.find(reinterpret_cast<std::uintptr_t>(address));
    bool const host = device_or_none == kNoDevice;
    if (found == allocations.end() || (found->second.device == kNoDevice) != host) {
        contract(std::string(what) + " of an address that is not allocated");
    }
    long const number = found->second.number;
    auto const uses = [&](QueuedOperation const& queued) {
        return std::ranges::any_of(queued.operation.ranges, [&](MemoryRange const& range) {
            return range.allocation == number;
        });
    };
    expect_no_work(uses, std::string("memory freed by ") + what);
    // Pinned memory may be that of any device.
    if (std::ranges::count(sticky, cudaSuccess) == kDevices) {
        std::free(found->second.memory);
    } else {
        abandoned_.push_back(found->second.memory);
    }
    allocations.erase(found);
}

std::shared_ptr<StandinStream> RuntimeState::find_stream(cudaStream_t stream,
                                                         char const* what) const {
    if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
        contract(std::string(what) + " uses the default stream");
    }
    return streams.find(stream, what);
}

std::shared_ptr<StandinStream> RuntimeState::find_usable(cudaStream_t stream,
                                                         char const* what) const {
    std::shared_ptr<StandinStream> found = find_stream(stream, what);
    if (found->device != current_device_slot()) {
        contract(std::string(what) + " on a stream of " + device_name(found->device) + " while " +
                 device_name(current_device_slot()) + " is current");
    }
    return found;
}

std::shared_ptr<StandinStream> RuntimeState::start_stream(int device, int priority) {
    auto stream = std::make_shared<StandinStream>();
    stream->device = device;
    stream->priority = priority;
    stream->thread = std::thread([this, stream] { run_queue(*stream); });
    return stream;
}

/// The allocation that the address lies in, or null.
Allocation const* RuntimeState::holder(std::uintptr_t address) const {
    auto const after = allocations.upper_bound(address);
    if (after == allocations.begin()) {
        return nullptr;
    }
    Allocation const& found = std::prev(after)->second;
    return address - found.address < found.bytes ? &found : nullptr;
}

/// Fills the range in and gives the device of its memory.
int RuntimeState::locate(MemoryRange& range, std::string const& name) const {
    auto const start = reinterpret_cast<std::uintptr_t>(range.address);
    Allocation const* const found = holder(start);
    std::string const subject = name + ": " + range.what;
    if (found == nullptr) {
        contract(subject + " is not in allocated memory (host memory must be page-locked)");
    }
    std::size_t const offset = start - found->address;
    if (range.bytes > found->bytes - offset) {
        contract(subject + " needs " + std::to_string(range.bytes) + " bytes, " +
                 std::to_string(found->bytes - offset) + " are there");
    }
    range.is_host = found->device == kNoDevice;
    if (range.is_host != (range.kind == MemoryKind::kHost)) {
        contract(subject + (range.is_host ? " is host memory" : " is device memory"));
    }
    range.allocation = found->number;
    range.memory = static_cast<char*>(found->memory) + offset;
    return found->device;
}

void RuntimeState::resolve(StandinStream const& stream, QueuedOperation& queued,
                           bool replayed) const {
    Operation& operation = queued.operation;
    for (MemoryRange& range : operation.ranges) {
        long const recorded = range.allocation;
        int const device = locate(range, operation.name);
        if (device != kNoDevice && device != stream.device) {
            contract(operation.name + ": " + range.what + " of " + device_name(device) +
                     " is used on a stream of " + device_name(stream.device));
        }
        if (replayed && range.allocation != recorded) {
            contract(operation.name + ": the graph uses " + range.what + " that was freed");
        }
        queued.memory.push_back(range.memory);
    }
    if (operation.context != nullptr && operation.context->device != stream.device) {
        contract(operation.name + ": a context of " + device_name(operation.context->device) +
                 " on a stream of " + device_name(stream.device));
    }
}

void RuntimeState::expect_no_conflict(StandinStream const& stream,
                                      QueuedOperation const& queued) const {
    for (auto const& [handle, other] : streams.all()) {
        if (other.get() == &stream) {
            continue;
        }
        for (QueuedOperation const& busy : other->queue) {
            Operation const& first = busy.operation;
            Operation const& second = queued.operation;
            if (second.context != nullptr && first.context == second.context) {
                contract("context " + second.context->name + " is used on two streams at once");
            }
            for (MemoryRange const& left : first.ranges) {
                for (MemoryRange const& right : second.ranges) {
                    if ((left.written || right.written) && overlap(left, right)) {
                        contract(second.name + " and " + first.name +
                                 " are in flight on two streams and share " + right.what + " (" +
                                 left.what + ")");
                    }
                }
            }
        }
    }
}

void RuntimeState::submit(StandinStream& stream, Operation operation,
                          std::shared_ptr<StandinGraph> exec) {
    bool const replayed = exec != nullptr;
    QueuedOperation queued;
    queued.operation = std::move(operation);
    queued.exec = std::move(exec);
    resolve(stream, queued, replayed);
    if (stream.capture) {
        stream.capture->operations.push_back(std::move(queued.operation));
        return;
    }
    expect_no_conflict(stream, queued);
    watch_host_memory(stream, queued);
    queued.sticky = queued.operation.illegal;
    if (queued.operation.execution) {
        counts["urgent"] += stream.priority < 0 ? 1 : 0;
        queued.nan = faults.fires("nan");
        queued.sticky = faults.fires("sticky");
    }
    push(stream, std::move(queued));
}

// Work may use host memory at any time from now on: who changes what it reads is found by the
// digest, and who reads too early what it writes finds no numbers.
void RuntimeState::watch_host_memory(StandinStream const& stream, QueuedOperation& queued) const {
    bool settled = true;
    for (MemoryRange const& range : queued.operation.ranges) {
        bool const used = std::ranges::any_of(stream.queue, [&](QueuedOperation const& earlier) {
            return shares_memory(earlier.operation, range);
        });
        settled = settled && !(range.is_host && used);
        if (range.is_host && range.written && !used) {
            std::memset(range.memory, kFilling, range.bytes);
        }
    }
    if (settled) {
        queued.digest = digest_of(queued);
    }
}

void RuntimeState::submit_event(StandinStream& stream, std::shared_ptr<StandinEvent> event) {
    QueuedOperation queued;
    queued.operation.name = "event";
    queued.request = ++event->requested;
    queued.event = std::move(event);
    push(stream, std::move(queued));
}

void RuntimeState::push(StandinStream& stream, QueuedOperation queued) {
    stream.queue.push_back(std::move(queued));
    ++stream.submitted;
    stream.wake.notify_all();
}

void RuntimeState::finish(StandinStream& stream) {
    QueuedOperation const& queued = stream.queue.front();
    if (queued.event != nullptr) {
        queued.event->completed = std::max(queued.event->completed, queued.request);
        queued.event->at = std::chrono::steady_clock::now();
    }
    stream.queue.pop_front();
    ++stream.finished;
    done.notify_all();
}

bool RuntimeState::breaks_capture(bool any_thread) {
    bool broken = false;
    for (auto const& [handle, stream] : streams.all()) {
        if (!stream->capture || stream->capture->mode == cudaStreamCaptureModeRelaxed) {
            continue;
        }
        bool const own = stream->capture->thread == std::this_thread::get_id();
        bool const global = stream->capture->mode == cudaStreamCaptureModeGlobal;
        if (own || (any_thread && global)) {
            stream->capture->invalidated = true;
            broken = true;
        }
    }
    return broken;
}

/// What a test asks for.
std::chrono::microseconds RuntimeState::pause(Operation const& operation) const {
    char const* const fault = operation.execution ? "run_us" : "other_us";
    return std::chrono::microseconds(faults.find(fault).value_or(0));
}

void RuntimeState::run_queue(StandinStream& stream) {
    std::unique_lock lock(mutex);
    for (;;) {
        stream.wake.wait(lock, [&] { return stream.stopping || !stream.queue.empty(); });
        if (stream.queue.empty()) {
            return;
        }
        QueuedOperation const& queued = stream.queue.front();
        bool const run = sticky[stream.device] == cudaSuccess;
        std::chrono::microseconds const waits = pause(queued.operation);
        lock.unlock();
        if (run && waits.count() > 0) {
            std::this_thread::sleep_for(waits);
        }
        if (run && queued.digest && *queued.digest != digest_of(queued)) {
            contract(queued.operation.name + ": its host memory was changed before it ran");
        }
        if (run && !queued.sticky && queued.operation.body) {
            queued.operation.body(queued.memory, queued.nan);
        }
        lock.lock();
        if (run && queued.sticky) {
            sticky[stream.device] = cudaErrorIllegalAddress;
        }
        finish(stream);
    }
}

// What the other stand-ins use.

bool is_set(char const* fault) {
    Lock const lock(state().mutex);
    return state().faults.find(fault).has_value();
}

long value_of(char const* fault, long otherwise) {
    Lock const lock(state().mutex);
    return state().faults.find(fault).value_or(otherwise);
}

bool fires(char const* fault) {
    Lock const lock(state().mutex);
    return state().faults.fires(fault);
}

void add_count(char const* what) {
    Lock const lock(state().mutex);
    ++state().counts[what];
}

void add_live(long objects) {
    Lock const lock(state().mutex);
    state().extra_live += objects;
}

void reserve(int device, long bytes) {
    Lock const lock(state().mutex);
    state().reserved[device] += bytes;
}

cudaError_t device_error() {
    Lock const lock(state().mutex);
    return state().device_error(current_device_slot());
}

char const* text_of(cudaError_t error) { return cudaGetErrorString(error); }

int current_device() { return current_device_slot(); }

void expect_usable(cudaStream_t stream, char const* what) {
    Lock const lock(state().mutex);
    static_cast<void>(state().find_usable(stream, what));
}

bool is_capturing(cudaStream_t stream) {
    Lock const lock(state().mutex);
    return state().find_stream(stream, "enqueue")->capture.has_value();
}

void invalidate_capture(cudaStream_t stream) {
    Lock const lock(state().mutex);
    auto const found = state().find_stream(stream, "enqueue");
    if (found->capture) {
        found->capture->invalidated = true;
    }
}

void disturb_captures(int device) {
    Lock const lock(state().mutex);
    for (auto const& [handle, stream] : state().streams.all()) {
        if (stream->device == device && stream->capture) {
            stream->capture->invalidated = true;
        }
    }
}

cudaError_t submit(cudaStream_t stream, Operation const& operation) {
    Lock const lock(state().mutex);
    auto const found = state().find_usable(stream, operation.name.c_str());
    cudaError_t const error = state().device_error(found->device);
    if (error == cudaSuccess) {
        state().submit(*found, operation);
    }
    return error;
}

cudaError_t synchronize(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

void expect_not_captured(ContextUse const& context, char const* what) {
    Lock const lock(state().mutex);
    if (context.graphs > 0) {
        contract("context " + context.name + ": " + what +
                 " while an executable graph that captured it lives");
    }
}

void expect_unused(ContextUse const& context, char const* what) {
    {
        Lock const lock(state().mutex);
        state().expect_no_work(
            [&](QueuedOperation const& queued) {
                return queued.operation.context.get() == &context;
            },
            std::string("context ") + what);
    }
    expect_not_captured(context, what);
}

}  // namespace duovec::standin
