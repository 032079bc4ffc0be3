// What a flavour of TensorRT can do, in words that name neither the flavour nor its headers.
//
// Each flavour's sources are compiled with their own headers into their own namespace and hand out
// one Backend; the bridge knows this file alone. So both flavours, and two major versions of one,
// live in one binary although their class tables differ.
//
// Thread safety: a Backend may be used from all threads; its builds run one after the other. An
// Engine may be used from all threads; a Session belongs to the thread that opened it.
// Ownership: a Backend is shared; what it hands out keeps it alive as long as that needs it.
// Preconditions: none; every function throws duovec::Error.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion.h"
#include "layout.h"
#include "profile.h"

namespace duovec {

enum class Flavour : std::uint8_t { kTensorRt, kTensorRtRtx };

enum class Severity : std::uint8_t { kError, kWarning, kInfo, kVerbose };

/// Where the library's own lines go. Called from any thread, must not throw.
using LogSink = void (*)(Flavour flavour, Severity severity, std::string_view line);

struct Version {
    std::int32_t major = 0;
    std::int32_t minor = 0;
    std::int32_t patch = 0;
    std::int32_t build = 0;
};

struct BuildRequest {
    /// ONNX; external data lie beside it.
    std::string model_path;
    std::vector<Profile> profiles;
    /// What the manifest says, which the graph must fit.
    TensorTypes tensors = kInputTypes;
    std::int32_t length_max = 0;
    std::int32_t vocabulary_size = 0;
    /// RTX only: 75 for 7.5 and so on; empty is the library's default (8.0 and later).
    std::vector<std::int32_t> compute_capabilities;
    /// Data-centre flavour only.
    bool hardware_compatible = false;
    /// Other models of GPUs with the same compute capability, not later ones.
    bool same_compute_capability = false;
    bool version_compatible = false;
    /// Data-centre flavour only: from 0, quick, to 5, all that is known; -1 for the library's own.
    std::int32_t optimization_level = -1;
    /// Data-centre flavour only: device memory that a kernel may take besides its inputs and
    /// outputs; 0 for the library's own limit.
    std::int64_t workspace_bytes = 0;
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
    /// Of an attention, 0 when none was found in the graph.
    std::int32_t heads = 0;
    /// Of all profiles together, 0 when the library did not say.
    std::int32_t layers = 0;
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

struct EngineRequest {
    /// A serialized plan; not needed after the call.
    std::span<std::uint8_t const> plan;
    /// What the manifest says of it, which it must be.
    std::vector<Profile> profiles;
    TensorTypes tensors = kInputTypes;
    /// Whether the plan may bring code that runs on the host, as version-compatible ones do.
    bool host_code_allowed = false;
    /// What Engine::kernels gave for the same plan on the same GPU; may be empty. What the library
    /// does not take of it, it compiles. Not needed after the call.
    std::span<std::uint8_t const> kernels;
    /// CUDA's number of the GPU.
    std::int32_t device = 0;
    /// The CUDA runtime, as the loader finds it.
    std::string cuda_file;
};

/// What a session is to be ready for.
struct SessionRequest {
    /// Every shape that will be run; each must be covered by a profile.
    std::vector<Shape> shapes;
    /// Shapes of at most so many tokens run from a captured graph, when they can be captured and,
    /// where their runs are long, when that saves time.
    std::int64_t captured_tokens_max = 0;
    /// Runs that take so long are long. Their graphs are measured, and who waits for them sleeps:
    /// waking up takes some 50 us. A shorter run always gains by a graph, since launching its
    /// kernels takes a good part of it.
    std::chrono::nanoseconds long_run = std::chrono::milliseconds(2);
};

/// Pinned memory of the staged shape, to be filled: row-major [rows, length], and for the last one
/// [rows, spans, length].
struct StagedInputs {
    std::span<std::int32_t> input_ids;
    std::span<std::int32_t> positions;
    std::span<std::int32_t> segments;
    std::span<float> span_weights;
};

/// Pinned memory with what the last run gave: row-major, as kTensorRules says; empty for an output
/// that the plan has not. Valid until the next run.
struct RunOutput {
    Element element = Element::kFloat32;
    std::span<std::byte const> bytes;
};

/// Whether somebody waits for a run, or throughput counts: the device begins urgent work of any
/// session before usual work.
enum class Urgency { kUsual, kUrgent };

/// How to wait for a run: awake if it is short, or always asleep, where other threads need the
/// core.
enum class Waits { kByTime, kAsleep };

/// Which outputs a run copies from the device: vectors of tokens take kilobytes each.
enum class Copied { kAll, kButTokenVectors };

/// Nanoseconds on the device, by CUDA's events; all zero when the run was not timed.
struct RunTimes {
    std::int64_t copy_in = 0;
    std::int64_t compute = 0;
    std::int64_t copy_out = 0;
};

/// What a layer takes of a run.
struct LayerTime {
    std::string name;
    double microseconds = 0;
};

/// How a session runs the shapes it has seen.
struct SessionReport {
    std::int32_t captured = 0;
    std::int32_t plain = 0;
    /// Contexts that were made so far, also those that were given up, with the time that took and
    /// the device's memory that was gone then.
    std::int32_t contexts = 0;
    std::chrono::nanoseconds contexts_took{};
    std::int64_t contexts_bytes = 0;
    /// Why the first of the graphs that failed could not be captured; empty when none failed.
    std::string refused;
};

/// One stream with its buffers and contexts.
class Session {
 public:
    Session() = default;
    virtual ~Session() = default;
    Session(Session const&) = delete;
    Session& operator=(Session const&) = delete;

    /// Chooses the shape of the next run. Throws Error(kRequest) for one that was not requested.
    virtual StagedInputs stage(Shape shape) = 0;

    /// Runs what was staged and waits for it. Runs that are waited for asleep are timed, of others
    /// some. The first run of a shape also captures its graph; later ones allocate nothing on the
    /// host. Throws Error(kTransient) when only this run failed, Error(kOutOfMemory), or
    /// Error(kPoisoned) when no run of this process will succeed again.
    virtual RunTimes run(Urgency urgency = Urgency::kUsual, Waits waiting = Waits::kByTime,
                         Copied copied = Copied::kAll) = 0;

    virtual RunOutput output(TensorName name) const noexcept = 0;
    virtual SessionReport report() const = 0;
};

/// A deserialized plan on one device.
class Engine {
 public:
    Engine() = default;
    virtual ~Engine() = default;
    Engine(Engine const&) = delete;
    Engine& operator=(Engine const&) = delete;

    virtual TensorTypes const& tensors() const noexcept = 0;

    /// The layers of the plan with their shapes and kernels, as JSON in the library's own form.
    /// Throws Error(kModel) when it gives none.
    virtual std::string layers() const = 0;

    /// What each layer takes in a run of the shape, in their order: means of some runs. Runs on the
    /// calling thread, and throws as open_session and Session::run do, or Error(kModel) when the
    /// library tells no times.
    virtual std::vector<LayerTime> layer_times(Shape shape) const = 0;

    /// What the library has compiled on the device so far, in its own form, for the next process.
    /// Empty where it compiles nothing, and on a device that is lost.
    virtual std::vector<std::uint8_t> kernels() const = 0;

    /// On the thread that will run it. Throws Error(kRequest) for a shape that no profile covers,
    /// Error(kOutOfMemory) and others of CUDA's. The engine must outlive the session.
    virtual std::unique_ptr<Session> open_session(SessionRequest const& request) const = 0;
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

    /// Puts a plan on its device. Throws Error(kLibrary) without the CUDA runtime, Error(kDevice)
    /// without a driver or that GPU, Error(kModel) when the plan cannot run there or is not what
    /// the request says.
    virtual std::unique_ptr<Engine> load(EngineRequest const& request) const = 0;
};

/// Each opens the flavour's libraries in `directory`, or where the loader looks when it is empty.
/// There is one log sink for the whole process: the last one given.
namespace tensorrt {
std::shared_ptr<Backend> open_backend(std::string const& directory, LogSink sink);
}
namespace tensorrt_10 {
std::shared_ptr<Backend> open_backend(std::string const& directory, LogSink sink);
}
namespace rtx {
std::shared_ptr<Backend> open_backend(std::string const& directory, LogSink sink);
}

}  // namespace duovec
