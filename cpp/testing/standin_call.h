// What the exported functions of the CUDA stand-in are made of: the lock and the error they give.
//
// Thread safety: as RuntimeState. Ownership: none. Preconditions: bodies run with the state locked.

#pragma once

#include <utility>

#include "testing/standin_state.h"

namespace duovec::standin {

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
    cudaError_t const error = state().device_error();
    return remember(error == cudaSuccess ? body(lock) : error);
}

/// As call, for what destroys: it happens although the device has failed.
template <typename Body>
cudaError_t destroy(Body const& body) {
    Lock lock(state().mutex);
    cudaError_t const error = body(lock);
    cudaError_t const failed = state().device_error();
    return remember(failed == cudaSuccess ? error : failed);
}

/// Until the condition holds or the device has failed.
template <typename Condition>
cudaError_t wait(Lock& lock, Condition const& condition) {
    state().done.wait(lock, [&] { return state().sticky != cudaSuccess || condition(); });
    return state().sticky;
}

}  // namespace duovec::standin
