#include "bridge.h"

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "duovec/src/engine/tensorrt/ffi.rs.h"

namespace duovec::bridge {
namespace {

rust::Slice<std::uint8_t const> bytes_of(std::string_view text) {
    return {reinterpret_cast<std::uint8_t const*>(text.data()), text.size()};
}

rust::Vec<std::uint8_t> copied(std::vector<std::uint8_t> const& bytes) {
    rust::Vec<std::uint8_t> copy;
    copy.reserve(bytes.size());
    std::ranges::copy(bytes, std::back_inserter(copy));
    return copy;
}

/// The sink of both flavours' loggers: Rust's tracing.
void log_to_rust(Flavour flavour, Severity severity, std::string_view line) {
    log_line(flavour, severity, bytes_of(line));
}

class RustObserver final : public BuildObserver {
 public:
    explicit RustObserver(Observer const& observer) : observer_(observer) {}

    bool progress(std::int32_t permille, std::string_view phase) noexcept override {
        return observer_.progress(permille, bytes_of(phase));
    }

 private:
    Observer const& observer_;
};

duovec::Profile profile_of(Profile const& profile) {
    return {std::string(profile.name),
            {profile.rows_min, profile.rows_opt, profile.rows_max},
            {profile.length_min, profile.length_opt, profile.length_max}};
}

constexpr std::size_t place_of(Output output) { return kInputs + std::size_t(output); }

/// What a plan is to have besides the inputs.
TensorTypes types_of(rust::Vec<OutputType> const& outputs) {
    TensorTypes types = kInputTypes;
    for (OutputType const& one : outputs) {
        types[place_of(one.output)] = TensorType{one.element, one.columns};
    }
    return types;
}

duovec::BuildRequest request_of(BuildRequest const& from) {
    duovec::BuildRequest request;
    request.model_path = std::string(from.model_path);
    request.tensors = types_of(from.outputs);
    for (Profile const& profile : from.profiles) {
        request.profiles.push_back(profile_of(profile));
    }
    request.length_max = from.length_max;
    request.vocabulary_size = from.vocabulary_size;
    request.compute_capabilities = {from.compute_capabilities.begin(),
                                    from.compute_capabilities.end()};
    request.hardware_compatible = from.hardware_compatible;
    request.same_compute_capability = from.same_compute_capability;
    request.version_compatible = from.version_compatible;
    request.optimization_level = from.optimization_level;
    request.workspace_bytes = from.workspace_bytes;
    request.timing_cache = {from.timing_cache.data(), from.timing_cache.size()};
    return request;
}

template <typename Number>
rust::Slice<Number const> numbers(duovec::Session const& session, Output output, Element wanted) {
    auto const [element, bytes] = session.output(static_cast<TensorName>(place_of(output)));
    if (element != wanted) {
        throw Error(ErrorKind::kInternal, "a tensor was asked for in another type than it has");
    }
    return {reinterpret_cast<Number const*>(bytes.data()), bytes.size() / sizeof(Number)};
}

struct FlavourOpener {
    Flavour flavour;
    std::shared_ptr<Backend> (*open)(std::string const& directory, LogSink sink);
};

/// What this program was built for, the newest major version of a flavour first.
constexpr std::initializer_list<FlavourOpener> kOpeners = {
#ifdef DUOVEC_WITH_TENSORRT
    {Flavour::kTensorRt, tensorrt::open_backend},
#endif
#ifdef DUOVEC_WITH_TENSORRT_10
    {Flavour::kTensorRt, tensorrt_10::open_backend},
#endif
#ifdef DUOVEC_WITH_TENSORRT_RTX
    {Flavour::kTensorRtRtx, rtx::open_backend},
#endif
};

}  // namespace

std::shared_ptr<Backend> open_library(Flavour flavour, rust::Str directory) {
    std::string problems;
    for (FlavourOpener const& opener : kOpeners) {
        if (opener.flavour != flavour) {
            continue;
        }
        try {
            return opener.open(std::string(directory), log_to_rust);
        } catch (Error const& error) {
            problems += (problems.empty() ? "" : "; ") + std::string(error.what());
        }
    }
    throw Error(ErrorKind::kLibrary, problems.empty()
                                         ? "this program was built without this flavour of TensorRT"
                                         : problems +
                                               "; install it, or name its folder: "
                                               "--tensorrt-library-dir");
}

Version version_of(Backend const& library) {
    auto const version = library.version();
    return {version.major, version.minor, version.patch, version.build};
}

std::unique_ptr<duovec::Plan> build_plan(Backend const& library, BuildRequest const& request,
                                         Observer const& observer) {
    RustObserver listener(observer);
    return library.build(request_of(request), listener);
}

std::shared_ptr<duovec::Engine> load(Backend const& library, EngineRequest const& from,
                                     rust::Slice<std::uint8_t const> plan,
                                     rust::Slice<std::uint8_t const> kernels) {
    duovec::EngineRequest request;
    request.plan = {plan.data(), plan.size()};
    request.kernels = {kernels.data(), kernels.size()};
    for (Profile const& profile : from.profiles) {
        request.profiles.push_back(profile_of(profile));
    }
    request.tensors = types_of(from.outputs);
    request.host_code_allowed = from.host_code_allowed;
    request.device = from.device;
    request.cuda_file = std::string(from.cuda_file);
    return library.load(request);
}

rust::Slice<std::uint8_t const> bytes_of(duovec::Plan const& plan) {
    return {plan.bytes().data(), plan.bytes().size()};
}

BuildReport report_of(duovec::Plan const& plan) {
    duovec::BuildReport const& from = plan.report();
    BuildReport report;
    report.precision = rust::String::lossy(from.precision);
    std::ranges::copy(from.scratch_bytes, std::back_inserter(report.scratch_bytes));
    report.position_rows = from.position_rows;
    report.heads = from.heads;
    report.layers = from.layers;
    report.fusion = from.fusion;
    for (std::string const& warning : from.warnings) {
        report.warnings.push_back(rust::String::lossy(warning));
    }
    report.timing_cache = copied(from.timing_cache);
    return report;
}

rust::Vec<OutputType> outputs_of(duovec::Engine const& engine) {
    rust::Vec<OutputType> outputs;
    for (std::size_t tensor = kInputs; tensor < kTensors; ++tensor) {
        if (auto const& type = engine.tensors()[tensor]) {
            auto const output = static_cast<Output>(tensor - kInputs);
            outputs.push_back({output, type->element, type->columns});
        }
    }
    return outputs;
}

rust::String layers_of(duovec::Engine const& engine) {
    return rust::String::lossy(engine.layers());
}

rust::Vec<LayerTime> layer_times(duovec::Engine const& engine, std::int32_t rows,
                                 std::int32_t length) {
    rust::Vec<LayerTime> times;
    for (duovec::LayerTime const& layer : engine.layer_times({rows, length})) {
        times.push_back({rust::String::lossy(layer.name), layer.microseconds});
    }
    return times;
}

rust::Vec<std::uint8_t> kernels_of(duovec::Engine const& engine) {
    return copied(engine.kernels());
}

std::unique_ptr<duovec::Session> open_session(duovec::Engine const& engine,
                                              SessionRequest const& from) {
    duovec::SessionRequest request;
    for (Shape const& shape : from.shapes) {
        request.shapes.push_back({shape.rows, shape.length});
    }
    request.captured_tokens_max = from.captured_tokens_max;
    return engine.open_session(request);
}

StagedInputs stage(duovec::Session& session, std::int32_t rows, std::int32_t length) {
    duovec::StagedInputs const staged = session.stage({rows, length});
    auto const slice = []<typename Number>(std::span<Number> numbers) {
        return rust::Slice<Number>(numbers.data(), numbers.size());
    };
    return {slice(staged.input_ids), slice(staged.positions), slice(staged.segments),
            slice(staged.span_weights)};
}

RunTimes run(duovec::Session& session, RunWishes wishes) {
    duovec::RunTimes const times =
        session.run(wishes.urgent ? Urgency::kUrgent : Urgency::kUsual,
                    wishes.asleep ? Waits::kAsleep : Waits::kByTime,
                    wishes.token_vectors ? Copied::kAll : Copied::kButTokenVectors);
    return {times.copy_in, times.compute, times.copy_out};
}

rust::Slice<std::int32_t const> integers(duovec::Session const& session, Output output) {
    return numbers<std::int32_t>(session, output, Element::kInt32);
}

rust::Slice<float const> floats(duovec::Session const& session, Output output) {
    return numbers<float>(session, output, Element::kFloat32);
}

rust::Slice<std::uint16_t const> halves(duovec::Session const& session, Output output) {
    return numbers<std::uint16_t>(session, output, Element::kFloat16);
}

SessionReport how_it_runs(duovec::Session const& session) {
    duovec::SessionReport const report = session.report();
    return {report.captured,       report.plain,
            report.contexts,       report.contexts_took.count(),
            report.contexts_bytes, rust::String::lossy(report.refused)};
}

}  // namespace duovec::bridge
