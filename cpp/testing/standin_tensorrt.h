// The classes of the TensorRT stand-ins. Each overrides what duovec uses; the rest are traps.
//
// Thread safety: as with the real library: a context belongs to one thread at a time, which is
// checked, and everything else may be used from all threads. Ownership: objects are destroyed with
// delete by whoever asked for them, users before what they use, which is checked. Preconditions:
// what is undefined with the real library ends the process with a line on stderr.

#pragma once

#include <NvInfer.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "standin_traps.h"
#include "testing/standin.h"
#include "testing/standin_plan.h"

namespace duovec::standin {

using namespace nvinfer1;
using namespace nvinfer1_traps;

#ifdef DUOVEC_RTX
constexpr char const* kFlavourName = "tensorrt-rtx";
#else
constexpr char const* kFlavourName = "tensorrt";
#endif

/// The vendor's public class over one of the classes below.
template <typename Public, typename Implementation>
class Owner final : public Public {
 public:
    template <typename... Arguments>
    explicit Owner(Arguments&&... arguments)
        : implementation_(std::forward<Arguments>(arguments)...) {
        if constexpr (std::is_same_v<Public, ILayer>) {
            this->mLayer = &implementation_;
        } else {
            this->mImpl = &implementation_;
        }
        add_live(1);
    }
    ~Owner() noexcept override { add_live(-1); }

    Implementation& implementation() { return implementation_; }
    Implementation const& implementation() const { return implementation_; }

 private:
    Implementation implementation_;
};

/// What the libraries' functions give that create a builder or a runtime.
template <typename Public, typename Implementation>
void* create(void* logger, std::int32_t version) {
    if (logger == nullptr) {
        contract("an object is created without a logger");
    }
    Public* const object = version / 10000 != NV_TENSORRT_MAJOR
                               ? nullptr
                               : new Owner<Public, Implementation>(*static_cast<ILogger*>(logger));
    return object;
}

/// Where an object's errors go: to its recorder, or without one to the logger. An engine begins
/// with its runtime's recorder, a context with its engine's.
class Reporter {
 public:
    explicit Reporter(ILogger& logger, IErrorRecorder* inherited = nullptr) : logger_(logger) {
        set_recorder(inherited);
    }
    ~Reporter() { set_recorder(nullptr); }
    Reporter(Reporter const&) = delete;
    Reporter& operator=(Reporter const&) = delete;

    void set_recorder(IErrorRecorder* recorder);
    IErrorRecorder* recorder() const;
    ILogger& logger() const { return logger_; }

    /// False, for callers to give on.
    bool fail(ErrorCode code, std::string const& text) const;
    void log(ILogger::Severity severity, std::string const& text) const;

 private:
    ILogger& logger_;
    mutable std::mutex mutex_;
    IErrorRecorder* recorder_ = nullptr;
};

class Runtime final : public TrapRuntime {
 public:
    explicit Runtime(ILogger& logger);
    ~Runtime() noexcept override;

    ICudaEngine* deserializeCudaEngine(void const* blob, std::size_t size) noexcept override;
    void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
        reporter_.set_recorder(recorder);
    }
    void setEngineHostCodeAllowed(bool allowed) noexcept override { host_code_allowed_ = allowed; }
#ifdef DUOVEC_RTX
    std::int64_t getEngineHeaderSize() const noexcept override;
    EngineValidity getEngineValidity(void const* blob, std::int64_t size,
                                     std::uint64_t* diagnostics) const noexcept override;
#endif

 private:
    Reporter reporter_;
    std::atomic<int> engines_ = 0;
    bool host_code_allowed_ = false;
};

class HostMemory final : public TrapHostMemory {
 public:
    explicit HostMemory(std::string bytes) : bytes_(std::move(bytes)) {}
    void* data() const noexcept override { return const_cast<char*>(bytes_.data()); }
    std::size_t size() const noexcept override { return bytes_.size(); }

 private:
    std::string bytes_;
};

#ifdef DUOVEC_RTX
/// What has been compiled for which shapes. As bytes it begins with the library's version; those of
/// another version are not taken, nor those that are cut short. Contexts on several threads share
/// it.
class RuntimeCache final : public TrapRuntimeCache {
 public:
    IHostMemory* serialize() const noexcept override;
    bool deserialize(void const* blob, std::size_t size) noexcept override;
    bool reset() noexcept override;

    /// Whether this was new.
    bool add(std::string const& kernel);

 private:
    mutable std::mutex mutex_;
    std::set<std::string> kernels_;
};
class RuntimeConfig final : public TrapRuntimeConfig {
 public:
    using Allocation = ExecutionContextAllocationStrategy;
    void setExecutionContextAllocationStrategy(Allocation strategy) noexcept override {
        allocation_ = strategy;
    }
    Allocation getExecutionContextAllocationStrategy() const noexcept override {
        return allocation_;
    }
    using Specialization = DynamicShapesKernelSpecializationStrategy;
    IRuntimeCache* createRuntimeCache() const noexcept override {
        return new Owner<IRuntimeCache, RuntimeCache>();
    }
    bool setRuntimeCache(IRuntimeCache const& cache) noexcept override {
        cache_ = &cache;
        return true;
    }
    IRuntimeCache* getRuntimeCache() const noexcept override {
        return const_cast<IRuntimeCache*>(cache_);
    }
    void setDynamicShapesKernelSpecializationStrategy(Specialization strategy) noexcept override {
        kernels_ = strategy;
    }
    Specialization getDynamicShapesKernelSpecializationStrategy() const noexcept override {
        return kernels_;
    }

 private:
    Allocation allocation_ = Allocation::kSTATIC;
    IRuntimeCache const* cache_ = nullptr;
    Specialization kernels_ = Specialization::kLAZY;
};
#endif

class EngineInspector final : public TrapEngineInspector {
 public:
    explicit EngineInspector(StandinPlan const& plan);
    char const* getEngineInformation(LayerInformationFormat format) const noexcept override;

 private:
    std::string text_;
};

class StandinEngine final : public TrapCudaEngine {
 public:
    StandinEngine(StandinPlan plan, Reporter const& parent, std::atomic<int>& engines);
    ~StandinEngine() noexcept override;

    std::shared_ptr<StandinPlan const> const& plan() const { return plan_; }
    int device() const { return device_; }
    /// Null when there is none.
    PlanTensor const* find(char const* name) const;

    std::int32_t getNbIOTensors() const noexcept override {
        return static_cast<std::int32_t>(plan_->tensors.size());
    }
    TensorIOMode getTensorIOMode(char const* name) const noexcept override;
    DataType getTensorDataType(char const* name) const noexcept override;
    Dims getTensorShape(char const* name) const noexcept override;
    std::int32_t getNbOptimizationProfiles() const noexcept override {
        return static_cast<std::int32_t>(plan_->profiles.size());
    }
    Dims getProfileShape(char const* name, std::int32_t profile,
                         OptProfileSelector select) const noexcept override;
    std::int64_t getDeviceMemorySizeForProfileV2(std::int32_t profile) const noexcept override;
    IExecutionContext* createExecutionContext(
        ExecutionContextAllocationStrategy strategy) noexcept override;
#ifdef DUOVEC_RTX
    IRuntimeConfig* createRuntimeConfig() noexcept override {
        return new Owner<IRuntimeConfig, RuntimeConfig>();
    }
    IExecutionContext* createExecutionContextWithRuntimeConfig(
        IRuntimeConfig* config) noexcept override;
#endif
    IEngineInspector* createEngineInspector() const noexcept override {
        return new Owner<IEngineInspector, EngineInspector>(*plan_);
    }
    void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
        reporter_.set_recorder(recorder);
    }

 private:
    Reporter reporter_;
    std::shared_ptr<StandinPlan const> plan_;
    int device_ = current_device();
    std::atomic<int>& engines_;
    std::atomic<int> contexts_ = 0;
};

class StandinContext final : public TrapExecutionContext {
 public:
    StandinContext(StandinEngine const& engine, Reporter const& parent,
                   ExecutionContextAllocationStrategy strategy, std::atomic<int>& contexts);
    ~StandinContext() noexcept override;

#ifdef DUOVEC_RTX
    /// From now on it compiles kernels before the first run of a shape, unless the cache has them.
    void specialize(RuntimeCache* cache) { compiles_ = true, cache_ = cache; }
#endif

    void setErrorRecorder(IErrorRecorder* recorder) noexcept override;
    void setProfiler(IProfiler* profiler) noexcept override;
    bool setOptimizationProfileAsync(std::int32_t profile, cudaStream_t stream) noexcept override;
    bool setInputShape(char const* name, Dims const& dims) noexcept override;
    bool setTensorAddress(char const* name, void* data) noexcept override;
    void setDeviceMemoryV2(void* memory, std::int64_t size) noexcept override;
    bool enqueueV3(cudaStream_t stream) noexcept override;

 private:
    /// What was set for a tensor.
    struct Binding {
        std::optional<std::vector<std::int64_t>> sizes;
        bool refused = false;
        void const* address = nullptr;
    };

    /// Aborts when another thread is in the context.
    class Guard;

    Binding* find(char const* name);
    /// Of the batch, by the first input that has sizes.
    std::optional<Shape> shape() const;
    /// Bytes of the profile that is selected.
    std::int64_t scratch_needed() const;
    /// Of all inputs; aborts when they have none or different ones.
    Shape expect_shape() const;
    Operation operation(Shape shape) const;
    std::optional<KernelRun> kernels(Shape shape) const;
    void add_scratch(Operation& operation) const;

    StandinEngine const& engine_;
    std::shared_ptr<StandinPlan const> plan_;
    Reporter reporter_;
    ExecutionContextAllocationStrategy strategy_;
    std::atomic<int>& contexts_;
    /// What the library keeps on the device for it.
    long const bytes_ = value_of("context_bytes", 0);
    std::shared_ptr<ContextUse> use_ = std::make_shared<ContextUse>();
    mutable std::atomic<bool> busy_ = false;
    std::vector<Binding> bindings_;
    /// A new context has the first one.
    std::int32_t profile_ = 0;
    void* scratch_ = nullptr;
    std::int64_t scratch_bytes_ = 0;
    /// Whether it ran since the last change, so that its run can be captured.
    bool primed_ = false;
    IProfiler* profiler_ = nullptr;
#ifdef DUOVEC_RTX
    bool compiles_ = false;
    RuntimeCache* cache_ = nullptr;
#endif
};

/// Aborts when the device is lost: nothing of TensorRT's may be destroyed then.
void expect_device(char const* what);
Dims dims_of(std::vector<std::int64_t> const& sizes);
std::vector<std::int64_t> sizes_of(Dims const& dims);
/// What is given for a name that is not known.
Dims no_dims();

}  // namespace duovec::standin
