// The builder's classes of the TensorRT stand-ins: a graph of tensors and layers, and what makes a
// plan of standin_plan.h from it.
//
// Thread safety: as with the real library, a builder and what it made belong to one thread.
// Ownership: whoever asked for an object destroys it; a network owns its tensors and layers, a
// builder its profiles. Preconditions: what is undefined with the real library aborts.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "testing/standin_tensorrt.h"

namespace duovec::standin {

inline std::int32_t count(std::size_t size) { return static_cast<std::int32_t>(size); }

/// Null where there is none, as with the real library.
template <typename Pointer>
auto* at(std::vector<Pointer> const& objects, std::int32_t index) {
    auto const place = static_cast<std::size_t>(index);
    return place < objects.size() ? &*objects[place] : nullptr;
}

class NetworkTensor final : public TrapTensor {
 public:
    NetworkTensor(std::string name, DataType type, Dims dims)
        : name_(std::move(name)), type_(type), dims_(dims) {}
    char const* getName() const noexcept override { return name_.c_str(); }
    Dims getDimensions() const noexcept override { return dims_; }
    DataType getType() const noexcept override { return type_; }

 private:
    std::string name_;
    DataType type_;
    Dims dims_;
};

class NetworkLayer final : public TrapLayer {
 public:
    NetworkLayer(LayerType type, std::vector<ITensor*> inputs, ITensor* output)
        : type_(type), inputs_(std::move(inputs)), output_(output) {}
    LayerType getType() const noexcept override { return type_; }
    std::int32_t getNbInputs() const noexcept override { return count(inputs_.size()); }
    ITensor* getInput(std::int32_t index) const noexcept override { return at(inputs_, index); }
    std::int32_t getNbOutputs() const noexcept override { return output_ == nullptr ? 0 : 1; }
    ITensor* getOutput(std::int32_t index) const noexcept override {
        return index == 0 ? output_ : nullptr;
    }

 private:
    LayerType type_;
    std::vector<ITensor*> inputs_;
    ITensor* output_;
};

class Network final : public TrapNetworkDefinition {
 public:
    explicit Network(bool strongly_typed) : strongly_typed_(strongly_typed) {}

    ITensor* addInput(char const* name, DataType type, Dims const& dims) noexcept override;
    void markOutput(ITensor& tensor) noexcept override { outputs_.push_back(&tensor); }
    std::int32_t getNbLayers() const noexcept override { return count(layers_.size()); }
    ILayer* getLayer(std::int32_t index) const noexcept override { return at(layers_, index); }
    std::int32_t getNbInputs() const noexcept override { return count(inputs_.size()); }
    ITensor* getInput(std::int32_t index) const noexcept override { return at(inputs_, index); }
    std::int32_t getNbOutputs() const noexcept override { return count(outputs_.size()); }
    ITensor* getOutput(std::int32_t index) const noexcept override { return at(outputs_, index); }

    bool strongly_typed() const { return strongly_typed_; }
    std::vector<ITensor*> const& inputs() const { return inputs_; }
    std::vector<ITensor*> const& outputs() const { return outputs_; }
    bool is_read(ITensor const* tensor) const;

    /// Adds what the text says; throws std::runtime_error.
    void read(std::string const& text);

 private:
    ITensor* add_tensor(std::string const& name, DataType type, Dims dims);
    ITensor* find(std::string const& name) const;
    void read_line(std::string const& line);
    void read_layer(std::istream& words);

    bool strongly_typed_;
    std::vector<std::shared_ptr<ITensor>> tensors_;
    std::vector<std::shared_ptr<ILayer>> layers_;
    std::vector<ITensor*> inputs_;
    std::vector<ITensor*> outputs_;
};

class OptimizationProfile final : public TrapOptimizationProfile {
 public:
    bool setDimensions(char const* name, OptProfileSelector select,
                       Dims const& dims) noexcept override;
    bool isValid() const noexcept override;
    /// Rows and lengths; nothing when the inputs do not agree on them.
    std::optional<ShapeRange> range() const;

 private:
    std::map<std::string, std::array<std::vector<std::int64_t>, 3>> sizes_;
};

class TimingCache final : public TrapTimingCache {
 public:
    explicit TimingCache(std::string text) : text_(std::move(text)) {}
    IHostMemory* serialize() const noexcept override {
        return new Owner<IHostMemory, HostMemory>(text_);
    }
    std::string const& text() const { return text_; }

 private:
    std::string text_;
};

class BuilderConfig final : public TrapBuilderConfig {
 public:
    explicit BuilderConfig(Reporter const& reporter) : reporter_(reporter) {}

    void setFlag(BuilderFlag flag) noexcept override { flags_ |= bit(flag); }
    void clearFlag(BuilderFlag flag) noexcept override { flags_ &= ~bit(flag); }
    bool getFlag(BuilderFlag flag) const noexcept override { return (flags_ & bit(flag)) != 0; }
    /// Without a result before TensorRT 11.
    using Taken = decltype(std::declval<TrapBuilderConfig&>().setMaxAuxStreams(0));
    Taken setMaxAuxStreams(std::int32_t streams) noexcept override {
        aux_streams_ = streams;
        return Taken(true);
    }
    void setProgressMonitor(IProgressMonitor* monitor) noexcept override { monitor_ = monitor; }
    void setProfilingVerbosity(ProfilingVerbosity verbosity) noexcept override {
        verbosity_ = verbosity;
    }
    std::int32_t addOptimizationProfile(IOptimizationProfile const* profile) noexcept override;
#ifdef DUOVEC_RTX
    bool setNbComputeCapabilities(std::int32_t count) noexcept override;
    bool setComputeCapability(ComputeCapability capability, std::int32_t index) noexcept override;
#else
    void setHardwareCompatibilityLevel(HardwareCompatibilityLevel level) noexcept override {
        compatibility_ = level;
    }
    HardwareCompatibilityLevel getHardwareCompatibilityLevel() const noexcept override {
        return compatibility_;
    }
    void setBuilderOptimizationLevel(std::int32_t level) noexcept override;
    std::int32_t getBuilderOptimizationLevel() const noexcept override { return level_; }
    void setMemoryPoolLimit(MemoryPoolType pool, std::size_t bytes) noexcept override;
    ITimingCache* createTimingCache(void const* blob, std::size_t size) const noexcept override;
    bool setTimingCache(ITimingCache const& cache, bool ignore_mismatch) noexcept override;
#endif

    IProgressMonitor* monitor() const { return monitor_; }
    std::vector<ShapeRange> const& profiles() const { return profiles_; }
    bool is_detailed() const { return verbosity_ == ProfilingVerbosity::kDETAILED; }
    /// What the plan says of how it was built, a line each.
    std::string settings() const;

 private:
    static std::uint32_t bit(BuilderFlag flag) { return 1U << static_cast<std::uint32_t>(flag); }

    Reporter const& reporter_;
    std::uint32_t flags_ = bit(BuilderFlag::kTF32);
    std::int32_t aux_streams_ = -1;
    IProgressMonitor* monitor_ = nullptr;
    ProfilingVerbosity verbosity_ = ProfilingVerbosity::kLAYER_NAMES_ONLY;
    std::vector<ShapeRange> profiles_;
    std::vector<std::int32_t> capabilities_;
    HardwareCompatibilityLevel compatibility_ = HardwareCompatibilityLevel::kNONE;
    /// What the library takes when nothing is said.
    std::int32_t level_ = 3;
    std::size_t workspace_bytes_ = 0;
    std::string cache_;
};

class Builder final : public TrapBuilder {
 public:
    explicit Builder(ILogger& logger) : reporter_(logger) {}

    INetworkDefinition* createNetworkV2(NetworkDefinitionCreationFlags flags) noexcept override;
    IBuilderConfig* createBuilderConfig() noexcept override {
        return new Owner<IBuilderConfig, BuilderConfig>(reporter_);
    }
    IOptimizationProfile* createOptimizationProfile() noexcept override;
    IHostMemory* buildSerializedNetwork(INetworkDefinition& network,
                                        IBuilderConfig& config) noexcept override;
    void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
        reporter_.set_recorder(recorder);
    }

 private:
    Reporter reporter_;
    std::vector<std::shared_ptr<IOptimizationProfile>> profiles_;
};

}  // namespace duovec::standin
