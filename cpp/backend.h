// What a flavour of TensorRT can do, in words that name neither the flavour nor its headers.
//
// Each flavour's sources are compiled with their own headers into their own namespace and hand out
// one Backend; the bridge knows this file alone. So both flavours live in one binary although
// their class tables differ.
//
// Thread safety: a Backend may be used from all threads; its builds run one after the other.
// Ownership: a Backend is shared; what it hands out keeps it alive as long as that needs it.
// Preconditions: none; every function throws duovec::Error.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion.h"
#include "profile.h"

namespace duovec {

enum class Flavour { kTensorRt, kTensorRtRtx };

enum class Severity { kError, kWarning, kInfo, kVerbose };

/// Where the library's own lines go. Called from any thread, must not throw.
using LogSink = void (*)(Flavour flavour, Severity severity, std::string_view line);

struct Version {
    std::int32_t major = 0;
    std::int32_t minor = 0;
    std::int32_t patch = 0;
    std::int32_t build = 0;
};

/// Types that sessions can fill or read.
enum class Element { kInt32, kInt64, kFloat32, kFloat16 };

/// An input or output the graph must have, of rank 2. `columns` is the fixed second size, 0 when
/// it is the length of the batch.
struct TensorSpec {
    std::string name;
    Element element = Element::kInt32;
    std::int32_t columns = 0;
};

struct BuildRequest {
    /// ONNX; external data lie beside it.
    std::string model_path;
    /// Exactly these, in any order.
    std::vector<TensorSpec> inputs;
    std::vector<TensorSpec> outputs;
    std::vector<Profile> profiles;
    /// The manifest's numbers, which the graph must fit.
    std::int32_t length_max = 0;
    std::int32_t vocabulary_size = 0;
    std::int32_t hidden_size = 0;
    /// RTX only: 75 for 7.5 and so on; empty is the library's default (8.0 and later).
    std::vector<std::int32_t> compute_capabilities;
    /// Data-centre flavour only.
    bool hardware_compatible = false;
    bool version_compatible = false;
    /// Data-centre flavour only: what an earlier build measured, may be empty.
    std::span<std::uint8_t const> timing_cache;
};

/// What is known of a plan without a GPU.
struct BuildReport {
    /// Arithmetic of the matrix products: "f32", "f16", "bf16" or "mixed".
    std::string precision;
    /// For each profile: device memory that its largest shape takes beside weights, inputs and
    /// outputs. Empty when the library did not say.
    std::vector<std::int64_t> scratch_bytes;
    /// Rows of the table of positions, 0 when none was found in the graph.
    std::int32_t position_rows = 0;
    /// Whether attention is one kernel that never writes its scores to memory.
    Fusion fusion = Fusion::kUnknown;
    /// What the library warned of; nothing in it made the plan wrong.
    std::vector<std::string> warnings;
    /// Data-centre flavour only: for the next build.
    std::vector<std::uint8_t> timing_cache;
};

/// Told of a build's progress, from several threads at once.
class BuildObserver {
 public:
    BuildObserver() = default;
    virtual ~BuildObserver() = default;
    BuildObserver(BuildObserver const&) = delete;
    BuildObserver& operator=(BuildObserver const&) = delete;

    /// `permille` of the whole, never less than before; false asks the build to stop, which it
    /// does within milliseconds.
    virtual bool progress(std::int32_t permille, std::string_view phase) noexcept = 0;
};

/// A serialized plan in host memory.
class Plan {
 public:
    Plan() = default;
    virtual ~Plan() = default;
    Plan(Plan const&) = delete;
    Plan& operator=(Plan const&) = delete;

    /// Valid as long as the plan.
    virtual std::span<std::uint8_t const> bytes() const noexcept = 0;
    virtual BuildReport const& report() const noexcept = 0;
};

class Backend {
 public:
    Backend() = default;
    virtual ~Backend() = default;
    Backend(Backend const&) = delete;
    Backend& operator=(Backend const&) = delete;

    /// Of the library that was opened.
    virtual Version version() const noexcept = 0;

    /// Takes seconds to minutes and several times the model's size of host memory.
    virtual std::unique_ptr<Plan> build(BuildRequest const& request,
                                        BuildObserver& observer) const = 0;
};

/// Each opens the flavour's libraries in `directory`, or where the loader looks when it is empty.
/// There is one log sink for the whole process: the last one given.
namespace tensorrt {
std::shared_ptr<Backend const> open_backend(std::string const& directory, LogSink sink);
}
namespace rtx {
std::shared_ptr<Backend const> open_backend(std::string const& directory, LogSink sink);
}

}  // namespace duovec
