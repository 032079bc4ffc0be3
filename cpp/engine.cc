#include "engine.h"

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "error.h"
#include "session.h"

namespace duovec::DUOVEC_FLAVOUR {
namespace {

using nvinfer1::DataType;
using nvinfer1::Dims;
using nvinfer1::ICudaEngine;
using nvinfer1::OptProfileSelector;
using nvinfer1::TensorIOMode;

[[noreturn]] void reject(std::string const& problem) {
    throw Error(ErrorKind::kModel,
                std::string(kProduct) + " cannot run this plan here: " + problem);
}

/// Logs the errors that were heard while a plan was loaded all the same: who hears them keeps them
/// from the log. They may be another GPU's, which loads at the same time. As a warning, since
/// whoever hears that load would keep an error from the log again.
void tell(Diagnostics const& heard) {
    std::string const errors = heard.errors("");
    if (!errors.empty()) {
        logger().log(nvinfer1::ILogger::Severity::kWARNING,
                     ("while a plan was loaded: " + errors).c_str());
    }
}

#ifdef DUOVEC_RTX
/// What the plan's header says against this machine, in words; "" when it fits, `suboptimal` when
/// it fits badly.
std::string invalidity(nvinfer1::IRuntime const& runtime, std::span<std::uint8_t const> plan,
                       bool& suboptimal) {
    using Invalidity = nvinfer1::EngineInvalidityDiagnostics;
    constexpr std::pair<Invalidity, char const*> kReasons[] = {
        {Invalidity::kVERSION_MISMATCH, "it was built by another version"},
        {Invalidity::kUNSUPPORTED_CC, "it was not built for this GPU's compute capability"},
        {Invalidity::kOLD_CUDA_DRIVER, "the driver is older than the one it was built with"},
        {Invalidity::kOLD_CUDA_RUNTIME, "the CUDA runtime is older than the one it was built with"},
        {Invalidity::kINSUFFICIENT_GPU_MEMORY, "the GPU's memory does not hold its weights"},
        {Invalidity::kMALFORMED_ENGINE, "it is not a plan of TensorRT-RTX"},
        {Invalidity::kCUDA_ERROR, "the driver or the CUDA runtime is not installed rightly"},
    };
    if (std::int64_t(plan.size()) < runtime.getEngineHeaderSize()) {
        return "it is cut short";
    }
    std::uint64_t reasons = 0;
    auto const validity =
        runtime.getEngineValidity(plan.data(), std::int64_t(plan.size()), &reasons);
    if (validity != nvinfer1::EngineValidity::kINVALID) {
        suboptimal = validity == nvinfer1::EngineValidity::kSUBOPTIMAL;
        return "";
    }
    std::string text;
    for (auto const& [reason, words] : kReasons) {
        if ((reasons & std::uint64_t(reason)) != 0) {
            text += (text.empty() ? "" : ", ") + std::string(words);
        }
    }
    return text.empty() ? "its header does not fit this machine" : text;
}
#endif

Element element_of(DataType type, std::string const& name) {
    switch (type) {
        case DataType::kINT32:
            return Element::kInt32;
        case DataType::kFLOAT:
            return Element::kFloat32;
        case DataType::kHALF:
            return Element::kFloat16;
        default:
            reject("tensor '" + name + "' has a type that no session can fill or read");
    }
}

/// The type of a tensor that must be there. Outputs may be of another floating type than `wanted`.
Element element_of(ICudaEngine const& engine, std::size_t tensor, TensorType const& wanted) {
    TensorRule const& rule = kTensorRules[tensor];
    std::string const name = rule.name;
    bool const is_input = tensor < kInputs;
    if (engine.getTensorIOMode(rule.name) !=
        (is_input ? TensorIOMode::kINPUT : TensorIOMode::kOUTPUT)) {
        reject(std::string("it has no ") + (is_input ? "input" : "output") + " '" + name + "'");
    }
    if (!same(engine.getTensorShape(rule.name), open_dims(rule, wanted.columns))) {
        reject("tensor '" + name + "' is not " + shape_text(rule, wanted.columns));
    }
    Element const element = element_of(engine.getTensorDataType(rule.name), name);
    bool const is_whole = element == Element::kInt32 || wanted.element == Element::kInt32;
    if (element != wanted.element && (is_input || is_whole)) {
        reject("tensor '" + name + "' has the wrong type");
    }
    return element;
}

TensorTypes read_tensors(ICudaEngine const& engine, EngineRequest const& request) {
    TensorTypes types = request.tensors;
    std::int32_t wanted = 0;
    for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
        if (types[tensor]) {
            types[tensor]->element = element_of(engine, tensor, *types[tensor]);
            ++wanted;
        }
    }
    if (engine.getNbIOTensors() != wanted) {
        reject("it has " + std::to_string(engine.getNbIOTensors()) + " tensors, not " +
               std::to_string(wanted));
    }
    return types;
}

/// Rows and lengths of a profile, if all inputs agree on them.
std::optional<Profile> profile_of(ICudaEngine const& engine, std::int32_t index,
                                  std::string const& name) {
    constexpr OptProfileSelector kSelectors[] = {OptProfileSelector::kMIN, OptProfileSelector::kOPT,
                                                 OptProfileSelector::kMAX};
    std::array<Shape, 3> shapes;
    for (std::size_t at = 0; at < shapes.size(); ++at) {
        auto const dims = [&](TensorRule const& rule) {
            return engine.getProfileShape(rule.name, index, kSelectors[at]);
        };
        Dims const ids = dims(kTensorRules[kInputIds]);
        shapes[at] = {static_cast<std::int32_t>(ids.d[0]), static_cast<std::int32_t>(ids.d[1])};
        for (TensorRule const& rule : kInputRules) {
            if (!same(dims(rule), dims_of(rule, shapes[at], 0))) {
                return std::nullopt;
            }
        }
    }
    auto const& [min, opt, max] = shapes;
    return Profile{name, {min.rows, opt.rows, max.rows}, {min.length, opt.length, max.length}};
}

void check_plan_profiles(ICudaEngine const& engine, EngineRequest const& request) {
    auto const count = static_cast<std::int32_t>(request.profiles.size());
    if (engine.getNbOptimizationProfiles() != count) {
        reject("it has " + std::to_string(engine.getNbOptimizationProfiles()) +
               " profiles, the manifest " + std::to_string(count));
    }
    for (std::int32_t index = 0; index < count; ++index) {
        Profile const& wanted = request.profiles[static_cast<std::size_t>(index)];
        auto const found = profile_of(engine, index, wanted.name);
        if (!found) {
            reject("its profile '" + wanted.name + "' has other sizes for some of its inputs");
        }
        if (*found != wanted) {
            reject("its profile " + to_string(*found) + " is " + to_string(wanted) +
                   " in the manifest");
        }
    }
}

}  // namespace

LoadedEngine::LoadedEngine(std::shared_ptr<Library const> library, EngineRequest const& request)
    : library_(std::move(library)),
      cuda_(request.cuda_file),
      device_(request.device),
      profiles_(request.profiles) {
    // Before the library is asked: without a driver some versions return a bad pointer.
    cuda_.use(device_);
    runtime_ = library_->create_runtime(logger());
    runtime_->setErrorRecorder(&recorder_);
    runtime_->setEngineHostCodeAllowed(request.host_code_allowed);
    deserialize(request.plan);
    tensors_ = read_tensors(*engine_, request);
    check_plan_profiles(*engine_, request);
#ifdef DUOVEC_RTX
    open_kernel_cache(request.kernels);
#endif
}

LoadedEngine::~LoadedEngine() {
    // The last owner may be on a thread that has never used the device.
    if (cuda_.call().cudaSetDevice(device_) != cudaSuccess || is_lost()) {
#ifdef DUOVEC_RTX
        static_cast<void>(kernel_cache_.release());
#endif
        static_cast<void>(engine_.release());
        static_cast<void>(runtime_.release());
    }
}

#ifdef DUOVEC_RTX
void LoadedEngine::check_header(std::span<std::uint8_t const> plan) {
    bool suboptimal = false;
    {
        Diagnostics const heard(Hearing::kErrors);
        std::string const problem = invalidity(*runtime_, plan, suboptimal);
        if (!problem.empty()) {
            reject(heard.errors(problem) == problem ? problem : problem + ": " + heard.errors(""));
        }
        tell(heard);
    }
    if (suboptimal) {
        logger().log(nvinfer1::ILogger::Severity::kWARNING,
                     "the plan runs on this GPU with reduced performance; build it again with: "
                     "duovec build-engine");
    }
}
#endif

void LoadedEngine::deserialize(std::span<std::uint8_t const> plan) {
#ifdef DUOVEC_RTX
    check_header(plan);
#endif
    Diagnostics const heard(Hearing::kErrors);
    engine_.reset(runtime_->deserializeCudaEngine(plan.data(), plan.size()));
    if (engine_ != nullptr) {
        return tell(heard);
    }
    std::string const reason = recorder_.errors(heard.errors("it gives no reason"));
    if (recorder_.kind(ErrorKind::kModel) == ErrorKind::kOutOfMemory) {
        throw Error(ErrorKind::kOutOfMemory, "no memory for the plan: " + reason);
    }
    reject(reason);
}

#ifdef DUOVEC_RTX
void LoadedEngine::open_kernel_cache(std::span<std::uint8_t const> kernels) {
    std::unique_ptr<nvinfer1::IRuntimeConfig> const config(engine_->createRuntimeConfig());
    // Without the cache every context compiles its kernels anew, and is right all the same.
    kernel_cache_.reset(config == nullptr ? nullptr : config->createRuntimeCache());
    if (kernel_cache_ == nullptr || kernels.empty() ||
        kernel_cache_->deserialize(kernels.data(), kernels.size())) {
        return;
    }
    // A part of them may have been taken.
    static_cast<void>(kernel_cache_->reset());
    recorder_.clear();
    logger().log(nvinfer1::ILogger::Severity::kWARNING,
                 "the kernels of an earlier start do not fit, so they are compiled anew");
}
#endif

std::string LoadedEngine::layers() const {
    std::unique_ptr<nvinfer1::IEngineInspector> const inspector(engine_->createEngineInspector());
    char const* const text =
        inspector == nullptr
            ? nullptr
            : inspector->getEngineInformation(nvinfer1::LayerInformationFormat::kJSON);
    if (text == nullptr || *text == '\0') {
        throw Error(ErrorKind::kModel, std::string(kProduct) + " tells no layers of the plan");
    }
    return text;
}

std::vector<LayerTime> LoadedEngine::layer_times(Shape shape) const {
    return StreamSession(*this, {{shape}, 0}).layer_times(shape);
}

std::vector<std::uint8_t> LoadedEngine::kernels() const {
#ifdef DUOVEC_RTX
    if (kernel_cache_ != nullptr && !is_lost()) {
        return copied(std::unique_ptr<nvinfer1::IHostMemory>(kernel_cache_->serialize()));
    }
#endif
    return {};
}

std::unique_ptr<Session> LoadedEngine::open_session(SessionRequest const& request) const {
    return std::make_unique<StreamSession>(*this, request);
}

}  // namespace duovec::DUOVEC_FLAVOUR
