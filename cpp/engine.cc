#include "engine.h"

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

constexpr char const* kRebuild = "; build it again with: duovec build-engine";

[[noreturn]] void refuse(std::string const& problem) {
    throw Error(ErrorKind::kModel,
                std::string(kProduct) + " cannot run this plan here: " + problem + kRebuild);
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
        case DataType::kINT64:
            return Element::kInt64;
        case DataType::kFLOAT:
            return Element::kFloat32;
        case DataType::kHALF:
            return Element::kFloat16;
        default:
            refuse("tensor '" + name + "' has a type that no session can fill or read");
    }
}

bool is_float(Element element) {
    return element == Element::kFloat32 || element == Element::kFloat16;
}

/// The type of a tensor of rank 2 that must be there; `columns` is -1 where it is the length.
Element tensor(ICudaEngine const& engine, std::string const& name, TensorIOMode mode,
               std::int32_t columns) {
    if (engine.getTensorIOMode(name.c_str()) != mode) {
        bool const input = mode == TensorIOMode::kINPUT;
        refuse(std::string("it has no ") + (input ? "input" : "output") + " '" + name + "'");
    }
    Dims const shape = engine.getTensorShape(name.c_str());
    if (shape.nbDims != 2 || shape.d[1] != columns) {
        std::string const wanted = columns < 0 ? "length" : std::to_string(columns);
        refuse("tensor '" + name + "' is not [rows, " + wanted + "]");
    }
    Element const element = element_of(engine.getTensorDataType(name.c_str()), name);
    if (is_float(element) != (mode == TensorIOMode::kOUTPUT)) {
        refuse("tensor '" + name + "' has the wrong type");
    }
    return element;
}

TensorElements read_tensors(ICudaEngine const& engine, EngineRequest const& request) {
    TensorElements elements;
    auto const input = TensorIOMode::kINPUT;
    elements.inputs = tensor(engine, request.input_ids, input, -1);
    if (tensor(engine, request.attention_mask, input, -1) != elements.inputs) {
        refuse("its two inputs have different types");
    }
    auto const output = TensorIOMode::kOUTPUT;
    elements.dense = tensor(engine, request.dense, output, request.hidden_size);
    elements.has_token_weights = !request.token_weights.empty();
    if (elements.has_token_weights) {
        elements.token_weights = tensor(engine, request.token_weights, output, -1);
    }
    std::int32_t const wanted = elements.has_token_weights ? 4 : 3;
    if (engine.getNbIOTensors() != wanted) {
        refuse("it has " + std::to_string(engine.getNbIOTensors()) + " tensors, the manifest " +
               std::to_string(wanted));
    }
    return elements;
}

Range range(ICudaEngine const& engine, std::string const& name, std::int32_t profile,
            std::int32_t axis) {
    auto const size = [&](OptProfileSelector selector) {
        Dims const shape = engine.getProfileShape(name.c_str(), profile, selector);
        return shape.nbDims == 2 ? static_cast<std::int32_t>(shape.d[axis]) : 0;
    };
    return {size(OptProfileSelector::kMIN), size(OptProfileSelector::kOPT),
            size(OptProfileSelector::kMAX)};
}

void check_plan_profiles(ICudaEngine const& engine, EngineRequest const& request) {
    auto const count = static_cast<std::int32_t>(request.profiles.size());
    if (engine.getNbOptimizationProfiles() != count) {
        refuse("it has " + std::to_string(engine.getNbOptimizationProfiles()) +
               " profiles, the manifest " + std::to_string(count));
    }
    for (std::int32_t index = 0; index < count; ++index) {
        Profile const& wanted = request.profiles[static_cast<std::size_t>(index)];
        for (std::string const& name : {request.input_ids, request.attention_mask}) {
            Profile const found{wanted.name, range(engine, name, index, 0),
                                range(engine, name, index, 1)};
            if (found != wanted) {
                refuse("its profile " + to_string(found) + " is " + to_string(wanted) +
                       " in the manifest");
            }
        }
    }
}

}  // namespace

LoadedEngine::LoadedEngine(std::shared_ptr<Library const> library, EngineRequest const& request)
    : library_(std::move(library)),
      cuda_(request.cuda_file),
      device_(request.device),
      profiles_(request.profiles),
      names_(request) {
    names_.plan = {};
    names_.kernels = {};
    // Before the library is asked: without a driver some versions return a bad pointer.
    cuda_.use(device_);
    runtime_ = library_->create_runtime(logger());
    runtime_->setErrorRecorder(&recorder_);
    runtime_->setEngineHostCodeAllowed(request.host_code_allowed);
    deserialize(request.plan);
    elements_ = read_tensors(*engine_, request);
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
        Diagnostics const heard;
        std::string const problem = invalidity(*runtime_, plan, suboptimal);
        if (!problem.empty()) {
            refuse(heard.errors(problem) == problem ? problem : problem + ": " + heard.errors(""));
        }
    }
    if (suboptimal) {
        std::string const line =
            std::string("the plan runs on this GPU with reduced performance") + kRebuild;
        logger().log(nvinfer1::ILogger::Severity::kWARNING, line.c_str());
    }
}
#endif

void LoadedEngine::deserialize(std::span<std::uint8_t const> plan) {
#ifdef DUOVEC_RTX
    check_header(plan);
#endif
    Diagnostics heard;
    engine_.reset(runtime_->deserializeCudaEngine(plan.data(), plan.size()));
    if (engine_ != nullptr) {
        return;
    }
    std::string const reason = recorder_.errors(heard.errors("it gives no reason"));
    if (recorder_.kind(ErrorKind::kModel) == ErrorKind::kOutOfMemory) {
        throw Error(ErrorKind::kOutOfMemory, "no memory for the plan: " + reason);
    }
    refuse(reason);
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
        std::unique_ptr<nvinfer1::IHostMemory> const memory(kernel_cache_->serialize());
        if (memory != nullptr) {
            auto const* const begin = static_cast<std::uint8_t const*>(memory->data());
            return {begin, begin + memory->size()};
        }
    }
#endif
    return {};
}

std::unique_ptr<Session> LoadedEngine::open_session(SessionRequest const& request) const {
    return std::make_unique<StreamSession>(*this, request);
}

}  // namespace duovec::DUOVEC_FLAVOUR
