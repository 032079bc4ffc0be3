// The one exception of this library: what went wrong, and of which kind it is.
//
// Thread safety: an Error is a value. Ownership: it owns its message. The bridge turns it into
// Rust's BridgeError; nothing else crosses the border.

#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace duovec {

/// Kinds that ask for different reactions; the names are what crosses the bridge.
enum class ErrorKind {
    kLibrary,      ///< a library is missing, of a wrong version, or lacks a function
    kDevice,       ///< no usable driver or GPU
    kModel,        ///< the graph or the plan cannot be used
    kRequest,      ///< what was asked for contradicts itself
    kOutOfMemory,  ///< host or device memory is exhausted
    kCancelled,    ///< the observer asked to stop
    kTransient,    ///< this run failed, the next may succeed
    kPoisoned,     ///< a CUDA error that sticks: the process must end
    kInternal,     ///< a bug
};

/// The kind's name on the bridge: lower case, no colon.
constexpr char const* name_of(ErrorKind kind) {
    constexpr char const* kNames[] = {"library",   "device",        "model",
                                      "request",   "out_of_memory", "cancelled",
                                      "transient", "poisoned",      "internal"};
    return kNames[static_cast<std::size_t>(kind)];
}

class Error final : public std::runtime_error {
 public:
    Error(ErrorKind kind, std::string const& message) : std::runtime_error(message), kind_(kind) {}

    ErrorKind kind() const noexcept { return kind_; }

 private:
    ErrorKind kind_;
};

}  // namespace duovec
