#include "bridge.h"

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend.h"
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
void log_to_rust(duovec::Flavour flavour, duovec::Severity severity, std::string_view line) {
    auto const from =
        flavour == duovec::Flavour::kTensorRt ? Flavour::TensorRt : Flavour::TensorRtRtx;
    auto const level = [&] {
        switch (severity) {
            case duovec::Severity::kError:
                return Severity::Error;
            case duovec::Severity::kWarning:
                return Severity::Warning;
            case duovec::Severity::kInfo:
                return Severity::Info;
            case duovec::Severity::kVerbose:
                return Severity::Verbose;
        }
        return Severity::Verbose;
    }();
    log_line(from, level, bytes_of(line));
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

duovec::Element element_of(Element element) {
    return element == Element::Float16 ? duovec::Element::kFloat16 : duovec::Element::kFloat32;
}

Element element_to(duovec::Element element) {
    return element == duovec::Element::kFloat16 ? Element::Float16 : Element::Float32;
}

duovec::Profile profile_of(Profile const& profile) {
    return {std::string(profile.name),
            {profile.rows_min, profile.rows_opt, profile.rows_max},
            {profile.length_min, profile.length_opt, profile.length_max}};
}

duovec::BuildRequest request_of(BuildRequest const& from) {
    duovec::BuildRequest request;
    request.model_path = std::string(from.model_path);
    request.elements = {element_of(from.elements.dense), element_of(from.elements.token_weights),
                        from.elements.has_token_weights};
    for (Profile const& profile : from.profiles) {
        request.profiles.push_back(profile_of(profile));
    }
    request.length_max = from.length_max;
    request.vocabulary_size = from.vocabulary_size;
    request.hidden_size = from.hidden_size;
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

/// Bytes as numbers of the type that the plan must have there.
template <typename Number>
rust::Slice<Number const> numbers(std::span<std::byte const> bytes, duovec::Element has,
                                  duovec::Element wanted) {
    if (has != wanted) {
        throw Error(ErrorKind::kInternal, "a tensor was asked for in another type than it has");
    }
    return {reinterpret_cast<Number const*>(bytes.data()), bytes.size() / sizeof(Number)};
}

Fusion fusion_of(duovec::Fusion fusion) {
    switch (fusion) {
        case duovec::Fusion::kUnknown:
            return Fusion::Unknown;
        case duovec::Fusion::kFused:
            return Fusion::Fused;
        case duovec::Fusion::kNotFused:
            return Fusion::NotFused;
    }
    return Fusion::Unknown;
}

struct FlavourOpener {
    Flavour flavour;
    std::shared_ptr<Backend const> (*open)(std::string const& directory, LogSink sink);
};

/// What this program was built for, the newest major version of a flavour first.
constexpr std::initializer_list<FlavourOpener> kOpeners = {
#ifdef DUOVEC_WITH_TENSORRT
    {Flavour::TensorRt, tensorrt::open_backend},
#endif
#ifdef DUOVEC_WITH_TENSORRT_10
    {Flavour::TensorRt, tensorrt_10::open_backend},
#endif
#ifdef DUOVEC_WITH_TENSORRT_RTX
    {Flavour::TensorRtRtx, rtx::open_backend},
#endif
};

std::shared_ptr<Backend const> open_backend(Flavour flavour, std::string const& directory) {
    std::string problems;
    for (FlavourOpener const& opener : kOpeners) {
        if (opener.flavour != flavour) {
            continue;
        }
        try {
            return opener.open(directory, log_to_rust);
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

}  // namespace

Plan::Plan(std::unique_ptr<duovec::Plan> plan) : plan_(std::move(plan)) {}

Plan::~Plan() = default;

rust::Slice<std::uint8_t const> Plan::bytes() const {
    auto const bytes = plan_->bytes();
    return {bytes.data(), bytes.size()};
}

BuildReport Plan::report() const {
    duovec::BuildReport const& from = plan_->report();
    BuildReport report;
    report.precision = rust::String::lossy(from.precision);
    std::ranges::copy(from.scratch_bytes, std::back_inserter(report.scratch_bytes));
    report.position_rows = from.position_rows;
    report.layers = from.layers;
    report.fusion = fusion_of(from.fusion);
    for (std::string const& warning : from.warnings) {
        report.warnings.push_back(rust::String::lossy(warning));
    }
    report.timing_cache = copied(from.timing_cache);
    return report;
}

Library::Library(std::shared_ptr<Backend const> backend) : backend_(std::move(backend)) {}

Version Library::version() const {
    auto const version = backend_->version();
    return {version.major, version.minor, version.patch, version.build};
}

std::unique_ptr<Plan> Library::build_plan(BuildRequest const& request,
                                          Observer const& observer) const {
    RustObserver listener(observer);
    return std::make_unique<Plan>(backend_->build(request_of(request), listener));
}

std::shared_ptr<Engine> Library::load(EngineRequest const& from,
                                      rust::Slice<std::uint8_t const> plan,
                                      rust::Slice<std::uint8_t const> kernels) const {
    duovec::EngineRequest request;
    request.plan = {plan.data(), plan.size()};
    request.kernels = {kernels.data(), kernels.size()};
    for (Profile const& profile : from.profiles) {
        request.profiles.push_back(profile_of(profile));
    }
    request.has_token_weights = from.has_token_weights;
    request.hidden_size = from.hidden_size;
    request.host_code_allowed = from.host_code_allowed;
    request.device = from.device;
    request.cuda_file = std::string(from.cuda_file);
    return std::make_shared<Engine>(backend_->load(request));
}

Engine::Engine(std::shared_ptr<duovec::Engine const> engine) : engine_(std::move(engine)) {}

Elements Engine::elements() const {
    TensorElements const elements = engine_->elements();
    return {element_to(elements.dense), element_to(elements.token_weights),
            elements.has_token_weights};
}

rust::String Engine::layers() const { return rust::String::lossy(engine_->layers()); }

rust::Vec<LayerTime> Engine::layer_times(std::int32_t rows, std::int32_t length) const {
    rust::Vec<LayerTime> times;
    for (duovec::LayerTime const& layer : engine_->layer_times({rows, length})) {
        times.push_back({rust::String::lossy(layer.name), layer.microseconds});
    }
    return times;
}

std::unique_ptr<Session> Engine::open_session(SessionRequest const& from) const {
    duovec::SessionRequest request;
    for (Shape const& shape : from.shapes) {
        request.shapes.push_back({shape.rows, shape.length});
    }
    request.captured_tokens_max = from.captured_tokens_max;
    return std::make_unique<Session>(engine_, engine_->open_session(request));
}

Session::Session(std::shared_ptr<duovec::Engine const> engine,
                 std::unique_ptr<duovec::Session> session)
    : engine_(std::move(engine)), session_(std::move(session)) {}

Session::~Session() = default;

StagedInputs Session::stage(std::int32_t rows, std::int32_t length) {
    duovec::StagedInputs const staged = session_->stage({rows, length});
    auto const slice = []<typename Number>(std::span<Number> numbers) {
        return rust::Slice<Number>(numbers.data(), numbers.size());
    };
    return {slice(staged.input_ids), slice(staged.positions), slice(staged.segments),
            slice(staged.span_weights)};
}

RunTimes Session::run(bool urgent) {
    duovec::RunTimes const times = session_->run(urgent ? Urgency::kUrgent : Urgency::kUsual);
    return {times.copy_in, times.compute, times.copy_out};
}

rust::Slice<float const> Session::dense_f32() const {
    return numbers<float>(session_->outputs().dense, engine_->elements().dense,
                          duovec::Element::kFloat32);
}

rust::Slice<std::uint16_t const> Session::dense_f16() const {
    return numbers<std::uint16_t>(session_->outputs().dense, engine_->elements().dense,
                                  duovec::Element::kFloat16);
}

rust::Slice<float const> Session::token_weights_f32() const {
    return numbers<float>(session_->outputs().token_weights, engine_->elements().token_weights,
                          duovec::Element::kFloat32);
}

rust::Slice<std::uint16_t const> Session::token_weights_f16() const {
    return numbers<std::uint16_t>(session_->outputs().token_weights,
                                  engine_->elements().token_weights, duovec::Element::kFloat16);
}

SessionReport Session::report() const {
    duovec::SessionReport const report = session_->report();
    return {report.captured, report.plain, rust::String::lossy(report.refused)};
}

rust::Vec<std::uint8_t> Session::kernels() const { return copied(engine_->kernels()); }

std::shared_ptr<Library> open_library(Flavour flavour, rust::Str directory) {
    return std::make_shared<Library>(open_backend(flavour, std::string(directory)));
}

}  // namespace duovec::bridge
