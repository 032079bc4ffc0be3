// The one exception of this library: what went wrong, and of which kind it is.
//
// Thread safety: an Error is a value. Ownership: it owns its message. The bridge turns it into
// Rust's BridgeError; nothing else crosses the border.

#pragma once

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
    switch (kind) {
        case ErrorKind::kLibrary:
            return "library";
        case ErrorKind::kDevice:
            return "device";
        case ErrorKind::kModel:
            return "model";
        case ErrorKind::kRequest:
            return "request";
        case ErrorKind::kOutOfMemory:
            return "out_of_memory";
        case ErrorKind::kCancelled:
            return "cancelled";
        case ErrorKind::kTransient:
            return "transient";
        case ErrorKind::kPoisoned:
            return "poisoned";
        case ErrorKind::kInternal:
            return "internal";
    }
    return "internal";
}

class Error final : public std::runtime_error {
 public:
    Error(ErrorKind kind, std::string const& message) : std::runtime_error(message), kind_(kind) {}

    ErrorKind kind() const noexcept { return kind_; }

 private:
    ErrorKind kind_;
};

}  // namespace duovec
