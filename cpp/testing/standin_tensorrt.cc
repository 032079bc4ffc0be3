// The stand-ins for TensorRT and TensorRT-RTX, for tests without a GPU; compiled once for each
// flavour. They run the plans of standin_plan.h on the streams of the stand-in for CUDA.

#include "testing/standin_tensorrt.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace duovec::standin {
namespace {

/// In the order of Element.
constexpr DataType kTypesOfElements[] = {DataType::kINT32, DataType::kFLOAT, DataType::kHALF};

}  // namespace

Dims dims_of(std::vector<std::int64_t> const& sizes) {
    Dims dims{};
    dims.nbDims = static_cast<std::int32_t>(sizes.size());
    std::ranges::copy(sizes, dims.d);
    return dims;
}

std::vector<std::int64_t> sizes_of(Dims const& dims) {
    return {dims.d, dims.d + std::max(dims.nbDims, 0)};
}

// Releases have thrown out of destructors there, which ends the process.
void expect_device(char const* what) {
    cudaError_t const error = device_error();
    if (error == cudaErrorIllegalAddress) {
        contract(std::string(what) + " is destroyed although its device is lost");
    }
}

Dims no_dims() {
    Dims dims{};
    dims.nbDims = -1;
    return dims;
}

void Reporter::set_recorder(IErrorRecorder* recorder) {
    std::lock_guard const lock(mutex_);
    if (recorder != nullptr) {
        recorder->incRefCount();
    }
    if (recorder_ != nullptr) {
        recorder_->decRefCount();
    }
    recorder_ = recorder;
}

IErrorRecorder* Reporter::recorder() const {
    std::lock_guard const lock(mutex_);
    return recorder_;
}

bool Reporter::fail(ErrorCode code, std::string const& text) const {
    IErrorRecorder* const recorder = this->recorder();
    if (recorder != nullptr) {
        recorder->reportError(code, text.c_str());
    } else {
        log(ILogger::Severity::kERROR, text);
    }
    return false;
}

void Reporter::log(ILogger::Severity severity, std::string const& text) const {
    logger_.log(severity, text.c_str());
}

Runtime::Runtime(ILogger& logger) : reporter_(logger) {
    reporter_.log(ILogger::Severity::kINFO, std::string("stand-in runtime of ") + kFlavourName);
}

Runtime::~Runtime() noexcept {
    expect_device("a runtime");
    if (engines_ != 0) {
        contract("a runtime is destroyed before its engine");
    }
}

ICudaEngine* Runtime::deserializeCudaEngine(void const* blob, std::size_t size) noexcept {
    auto const fail = [&](ErrorCode code, std::string const& text) {
        reporter_.fail(code, "deserializeCudaEngine: " + text);
        return nullptr;
    };
    if (blob == nullptr || size == 0) {
        return fail(ErrorCode::kINVALID_ARGUMENT, "blob != nullptr && size > 0");
    }
    cudaError_t const error = device_error();
    if (error != cudaSuccess) {
        return fail(ErrorCode::kFAILED_INITIALIZATION, text_of(error));
    }
    if (is_set("unsupported_device")) {
        return fail(ErrorCode::kFAILED_INITIALIZATION,
                    "the plan does not support this compute capability");
    }
    if (is_set("deserialize_fails")) {
        return fail(ErrorCode::kFAILED_INITIALIZATION, "scripted: the plan cannot be read");
    }
    if (is_set("deserialize_warns")) {
        reporter_.log(ILogger::Severity::kWARNING, "scripted: the plan is of another model of GPU");
    }
    if (is_set("deserialize_errs")) {
        reporter_.log(ILogger::Severity::kERROR, "scripted: a part of the plan is passed over");
    }
    try {
        std::string_view const text(static_cast<char const*>(blob), blob == nullptr ? 0 : size);
        StandinPlan plan = parse_plan(text, kFlavourName);
        // The words of libnvinfer_lean.so.11 (11.4.0.106).
        if (plan.host_code && !host_code_allowed_) {
            return fail(ErrorCode::kINVALID_STATE,
                        "Cannot deserialize engine with lean runtime since "
                        "IRuntime::getEngineHostCodeAllowed() is false.");
        }
        return new Owner<ICudaEngine, StandinEngine>(std::move(plan), reporter_, engines_);
    } catch (std::runtime_error const& problem) {
        return fail(ErrorCode::kINVALID_ARGUMENT,
                    std::string("the plan cannot be read: ") + problem.what());
    }
}

#ifdef DUOVEC_RTX
std::int64_t Runtime::getEngineHeaderSize() const noexcept {
    return static_cast<std::int64_t>(plan_header_bytes(kFlavourName));
}

EngineValidity Runtime::getEngineValidity(void const* blob, std::int64_t size,
                                          std::uint64_t* diagnostics) const noexcept {
    std::uint64_t found = 0;
    std::string_view const text(static_cast<char const*>(blob),
                                blob == nullptr || size < 0 ? 0 : static_cast<std::size_t>(size));
    if (!has_plan_header(text, kFlavourName)) {
        found |= static_cast<std::uint64_t>(EngineInvalidityDiagnostics::kMALFORMED_ENGINE);
    }
    if (is_set("unsupported_device")) {
        found |= static_cast<std::uint64_t>(EngineInvalidityDiagnostics::kUNSUPPORTED_CC);
    }
    if (device_error() != cudaSuccess) {
        found |= static_cast<std::uint64_t>(EngineInvalidityDiagnostics::kCUDA_ERROR);
    }
    if (diagnostics != nullptr) {
        *diagnostics = found;
    }
    if (found != 0) {
        return EngineValidity::kINVALID;
    }
    return is_set("suboptimal_plan") ? EngineValidity::kSUBOPTIMAL : EngineValidity::kVALID;
}

namespace {

std::string const kCacheHeader =
    "stand-in kernels of " + std::to_string(NV_TENSORRT_VERSION) + "\n";
constexpr std::string_view kCacheEnd = "end\n";

}  // namespace

IHostMemory* RuntimeCache::serialize() const noexcept {
    std::lock_guard const lock(mutex_);
    std::string text = kCacheHeader;
    for (std::string const& kernel : kernels_) {
        text += kernel + "\n";
    }
    return new Owner<IHostMemory, HostMemory>(text.append(kCacheEnd));
}

bool RuntimeCache::deserialize(void const* blob, std::size_t size) noexcept {
    std::string const text(static_cast<char const*>(blob), size);
    if (!text.starts_with(kCacheHeader) || !text.ends_with(kCacheEnd)) {
        return false;
    }
    std::lock_guard const lock(mutex_);
    std::istringstream lines(text.substr(kCacheHeader.size()));
    for (std::string line; std::getline(lines, line) && line + "\n" != kCacheEnd;) {
        kernels_.insert(line);
    }
    return true;
}

bool RuntimeCache::reset() noexcept {
    std::lock_guard const lock(mutex_);
    kernels_.clear();
    return true;
}

bool RuntimeCache::add(std::string const& kernel) {
    std::lock_guard const lock(mutex_);
    return kernels_.insert(kernel).second;
}

#endif

StandinEngine::StandinEngine(StandinPlan plan, Reporter const& parent, std::atomic<int>& engines)
    : reporter_(parent.logger(), parent.recorder()),
      plan_(std::make_shared<StandinPlan>(std::move(plan))),
      engines_(engines) {
    ++engines_;
}

StandinEngine::~StandinEngine() noexcept {
    expect_device("an engine");
    if (contexts_ != 0) {
        contract("an engine is destroyed before its context");
    }
    --engines_;
}

PlanTensor const* StandinEngine::find(char const* name) const {
    auto const found =
        std::ranges::find(plan_->tensors, name == nullptr ? "" : name, &PlanTensor::name);
    return found == plan_->tensors.end() ? nullptr : &*found;
}

TensorIOMode StandinEngine::getTensorIOMode(char const* name) const noexcept {
    PlanTensor const* const tensor = find(name);
    if (tensor == nullptr) {
        return TensorIOMode::kNONE;
    }
    return tensor->input ? TensorIOMode::kINPUT : TensorIOMode::kOUTPUT;
}

DataType StandinEngine::getTensorDataType(char const* name) const noexcept {
    PlanTensor const* const tensor = find(name);
    return tensor == nullptr ? DataType::kFLOAT
                             : kTypesOfElements[static_cast<std::size_t>(tensor->element)];
}

Dims StandinEngine::getTensorShape(char const* name) const noexcept {
    PlanTensor const* const tensor = find(name);
    if (tensor == nullptr) {
        return no_dims();
    }
    return dims_of(tensor->dims);
}

Dims StandinEngine::getProfileShape(char const* name, std::int32_t profile,
                                    OptProfileSelector select) const noexcept {
    PlanTensor const* const tensor = find(name);
    auto const index = static_cast<std::size_t>(profile);
    if (tensor == nullptr || !tensor->input || index >= plan_->profiles.size()) {
        return no_dims();
    }
    ShapeRange const& range = plan_->profiles[index];
    Shape const shape = select == OptProfileSelector::kMIN   ? range.min
                        : select == OptProfileSelector::kOPT ? range.opt
                                                             : range.max;
    return dims_of(tensor->sizes_of(shape));
}

std::int64_t StandinEngine::getDeviceMemorySizeForProfileV2(std::int32_t profile) const noexcept {
    auto const index = static_cast<std::size_t>(profile);
    if (index >= plan_->scratch.size()) {
        reporter_.fail(ErrorCode::kINVALID_ARGUMENT,
                       "getDeviceMemorySizeForProfileV2: (0) <= (profileIndex) && (profileIndex) < "
                       "(nbProfiles)");
        return 0;
    }
    return plan_->scratch[index];
}

IExecutionContext* StandinEngine::createExecutionContext(
    ExecutionContextAllocationStrategy strategy) noexcept {
    cudaError_t const error = device_error();
    if (error != cudaSuccess || is_set("context_fails")) {
        reporter_.fail(ErrorCode::kFAILED_ALLOCATION,
                       std::string("createExecutionContext: ") +
                           text_of(error == cudaSuccess ? cudaErrorMemoryAllocation : error));
        return nullptr;
    }
    if (is_set("context_refused")) {
        reporter_.fail(ErrorCode::kINVALID_STATE, "createExecutionContext: scripted: not now");
        return nullptr;
    }
    bool const user_managed = strategy == ExecutionContextAllocationStrategy::kUSER_MANAGED;
    if (plan_->user_allocation && !user_managed) {
        reporter_.fail(ErrorCode::kINVALID_STATE,
                       "createExecutionContext: StandinEngine was built with "
                       "BuilderFlag::kREQUIRE_USER_ALLOCATION. Execution context creation requires "
                       "ExecutionContextAllocationStrategy::kUSER_MANAGED allocation strategy.");
        return nullptr;
    }
    if (current_device() != device_) {
        contract("a context is created while another device than the engine's is current");
    }
    return new Owner<IExecutionContext, StandinContext>(*this, reporter_, strategy, contexts_);
}

EngineInspector::EngineInspector(StandinPlan const& plan) {
    for (std::string const& layer : plan.layers) {
        text_ += (text_.empty() ? R"({"Layers": [{"Name": ")" : R"("}, {"Name": ")") + layer;
    }
    text_ += text_.empty() ? "" : R"("}]})";
}

char const* EngineInspector::getEngineInformation(LayerInformationFormat format) const noexcept {
    if (format != LayerInformationFormat::kJSON) {
        contract("getEngineInformation: only JSON is provided");
    }
    return text_.c_str();
}

#ifdef DUOVEC_RTX
IExecutionContext* StandinEngine::createExecutionContextWithRuntimeConfig(
    IRuntimeConfig* config) noexcept {
    IExecutionContext* const made =
        createExecutionContext(config->getExecutionContextAllocationStrategy());
    bool const lazy = config->getDynamicShapesKernelSpecializationStrategy() ==
                      DynamicShapesKernelSpecializationStrategy::kLAZY;
    if (made != nullptr && !lazy) {
        auto* const cache =
            static_cast<Owner<IRuntimeCache, RuntimeCache>*>(config->getRuntimeCache());
        static_cast<Owner<IExecutionContext, StandinContext>*>(made)->implementation().specialize(
            cache == nullptr ? nullptr : &cache->implementation());
    }
    return made;
}
#endif

}  // namespace duovec::standin

extern "C" {

TENSORRTAPI std::int32_t getInferLibVersion() noexcept {
    return static_cast<std::int32_t>(duovec::standin::value_of("version", NV_TENSORRT_VERSION));
}

TENSORRTAPI std::int32_t getInferLibBuildVersion() noexcept { return NV_TENSORRT_BUILD; }

TENSORRTAPI void* createInferRuntime_INTERNAL(void* logger, std::int32_t version) noexcept {
    using duovec::standin::Runtime;
    if (duovec::standin::is_set("runtime_0x228")) {
        return reinterpret_cast<void*>(std::uintptr_t{0x228});
    }
    return duovec::standin::create<nvinfer1::IRuntime, Runtime>(logger, version);
}

}  // extern "C"
