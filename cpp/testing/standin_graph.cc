// Capture, executable graphs and events of the stand-in for the CUDA runtime; see standin_cuda.cc.

#include <algorithm>

#include "testing/standin_state.h"

using namespace duovec::standin;

namespace {

/// Whether both were recorded in a way that a time can be told of.
bool can_tell_time(StandinEvent const& event) {
    return event.timed && event.requested > 0 && !event.captured;
}

void release(StandinGraph const& exec) {
    for (Operation const& operation : exec.operations) {
        if (operation.context != nullptr) {
            --operation.context->graphs;
        }
    }
}

}  // namespace

// Capture and graphs.

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    return call([&](Lock&) {
        auto const found = state().find_usable(stream, "cudaStreamBeginCapture");
        if (found->capture) {
            return cudaErrorIllegalState;
        }
        found->capture.emplace();
        found->capture->thread = std::this_thread::get_id();
        found->capture->mode = mode;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    return call([&](Lock&) {
        *graph = nullptr;
        auto const found = state().find_stream(stream, "cudaStreamEndCapture");
        if (!found->capture) {
            return cudaErrorIllegalState;
        }
        if (found->capture->mode != cudaStreamCaptureModeRelaxed &&
            found->capture->thread != std::this_thread::get_id()) {
            return cudaErrorStreamCaptureWrongThread;
        }
        Capture capture = std::move(*found->capture);
        found->capture.reset();
        if (capture.invalidated || state().faults.find("capture_fails")) {
            return cudaErrorStreamCaptureInvalidated;
        }
        auto made = std::make_shared<StandinGraph>(
            StandinGraph{found->device, std::move(capture.operations)});
        *graph = static_cast<cudaGraph_t>(state().graphs.add(std::move(made)));
        ++state().counts["capture"];
        return cudaSuccess;
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return destroy([&](Lock&) {
        static_cast<void>(state().graphs.find(graph, "cudaGraphDestroy"));
        state().graphs.remove(graph);
        return cudaSuccess;
    });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long) {
    return call([&](Lock&) {
        *exec = nullptr;
        auto const found = state().graphs.find(graph, "cudaGraphInstantiate");
        if (state().faults.find("instantiate_fails")) {
            return cudaErrorMemoryAllocation;
        }
        auto made = std::make_shared<StandinGraph>(StandinGraph{found->device, found->operations});
        for (Operation const& operation : made->operations) {
            if (operation.context != nullptr) {
                ++operation.context->graphs;
            }
        }
        *exec = static_cast<cudaGraphExec_t>(state().execs.add(std::move(made)));
        return cudaSuccess;
    });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    std::this_thread::sleep_for(std::chrono::microseconds(value_of("launch_us", 0)));
    return call([&](Lock&) {
        auto const found = state().execs.find(exec, "cudaGraphLaunch");
        auto const target = state().find_usable(stream, "cudaGraphLaunch");
        if (found->device != target->device) {
            contract("a graph is launched on another device than it was captured on");
        }
        if (target->capture) {
            contract("a graph is launched on a stream that captures");
        }
        if (state().faults.fires("launch_fails")) {
            return cudaErrorLaunchOutOfResources;
        }
        for (Operation const& operation : found->operations) {
            state().submit(*target, operation, found);
        }
        ++state().counts["graph_launch"];
        return cudaSuccess;
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return destroy([&](Lock&) {
        auto const found = state().execs.find(exec, "cudaGraphExecDestroy");
        state().expect_no_work([&](QueuedOperation const& queued) { return queued.exec == found; },
                               "an executable graph is destroyed");
        release(*found);
        state().execs.remove(exec);
        return cudaSuccess;
    });
}

// Events.

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    return call([&](Lock&) {
        auto made = std::make_shared<StandinEvent>();
        made->device = current_device_slot();
        made->timed = (flags & cudaEventDisableTiming) == 0;
        made->blocking = (flags & cudaEventBlockingSync) != 0;
        *event = static_cast<cudaEvent_t>(state().events.add(std::move(made)));
        return cudaSuccess;
    });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return destroy([&](Lock&) {
        static_cast<void>(state().events.find(event, "cudaEventDestroy"));
        state().events.remove(event);
        return cudaSuccess;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return call([&](Lock&) {
        auto const found = state().events.find(event, "cudaEventRecord");
        auto const target = state().find_usable(stream, "cudaEventRecord");
        if (found->device != target->device) {
            contract("an event is recorded on another device than it was created on");
        }
        found->captured = target->capture.has_value();
        if (found->captured) {
            return cudaSuccess;
        }
        state().submit_event(*target, found);
        ++state().counts["event"];
        return cudaSuccess;
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return call([&](Lock& lock) {
        auto const found = state().events.find(event, "cudaEventSynchronize");
        if (state().breaks_capture(false)) {
            return cudaErrorStreamCaptureUnsupported;
        }
        if (found->captured) {
            return cudaErrorCapturedEvent;
        }
        ++state().counts[found->blocking ? "sleep" : "spin"];
        long const target = found->requested;
        return wait(lock, [&] { return found->completed >= target; });
    });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    return call([&](Lock&) {
        auto const from = state().events.find(start, "cudaEventElapsedTime");
        auto const to = state().events.find(end, "cudaEventElapsedTime");
        if (!can_tell_time(*from) || !can_tell_time(*to) || from->device != to->device) {
            return cudaErrorInvalidResourceHandle;
        }
        if (from->completed < from->requested || to->completed < to->requested) {
            return cudaErrorNotReady;
        }
        *milliseconds = std::chrono::duration<float, std::milli>(to->at - from->at).count();
        return cudaSuccess;
    });
}
