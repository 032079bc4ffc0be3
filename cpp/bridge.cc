#include "bridge.h"

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
    switch (element) {
        case Element::Int32:
            return duovec::Element::kInt32;
        case Element::Int64:
            return duovec::Element::kInt64;
        case Element::Float32:
            return duovec::Element::kFloat32;
        case Element::Float16:
            return duovec::Element::kFloat16;
    }
    throw Error(ErrorKind::kInternal, "an unknown element type");
}

std::vector<TensorSpec> tensors_of(rust::Vec<Tensor> const& tensors) {
    std::vector<TensorSpec> specs;
    for (Tensor const& tensor : tensors) {
        specs.push_back({std::string(tensor.name), element_of(tensor.element), tensor.columns});
    }
    return specs;
}

duovec::Profile profile_of(Profile const& profile) {
    return {std::string(profile.name),
            {profile.rows_min, profile.rows_opt, profile.rows_max},
            {profile.length_min, profile.length_opt, profile.length_max}};
}

duovec::BuildRequest request_of(BuildRequest const& from) {
    duovec::BuildRequest request;
    request.model_path = std::string(from.model_path);
    request.inputs = tensors_of(from.inputs);
    request.outputs = tensors_of(from.outputs);
    for (Profile const& profile : from.profiles) {
        request.profiles.push_back(profile_of(profile));
    }
    request.length_max = from.length_max;
    request.vocabulary_size = from.vocabulary_size;
    request.hidden_size = from.hidden_size;
    request.compute_capabilities = {from.compute_capabilities.begin(),
                                    from.compute_capabilities.end()};
    request.hardware_compatible = from.hardware_compatible;
    request.version_compatible = from.version_compatible;
    request.timing_cache = {from.timing_cache.data(), from.timing_cache.size()};
    return request;
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

std::shared_ptr<Backend const> open_backend(Flavour flavour, std::string const& directory) {
    switch (flavour) {
        case Flavour::TensorRt:
#ifdef DUOVEC_WITH_TENSORRT
            return tensorrt::open_backend(directory, log_to_rust);
#else
            break;
#endif
        case Flavour::TensorRtRtx:
#ifdef DUOVEC_WITH_TENSORRT_RTX
            return rtx::open_backend(directory, log_to_rust);
#else
            break;
#endif
    }
    static_cast<void>(directory);
    static_cast<void>(log_to_rust);
    throw Error(ErrorKind::kLibrary, "this program was built without this flavour of TensorRT");
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

std::shared_ptr<Library> open_library(Flavour flavour, rust::Str directory) {
    return std::make_shared<Library>(open_backend(flavour, std::string(directory)));
}

}  // namespace duovec::bridge
