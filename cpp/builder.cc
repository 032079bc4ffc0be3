#include "builder.h"

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "diagnostics.h"
#include "error.h"
#include "network.h"
#include "progress.h"

namespace duovec::DUOVEC_FLAVOUR {
namespace {

/// An input that no layer reads: the plan would compute something else.
constexpr std::string_view kLostInput = "Unused Input";

void require(bool done, Diagnostics const& diagnostics, std::string const& what) {
    if (!done) {
        diagnostics.fail(ErrorKind::kRequest, what);
    }
}

/// Hands the library's phases to the observer as one rising number.
class Monitor final : public nvinfer1::IProgressMonitor {
 public:
    explicit Monitor(BuildObserver& observer) : observer_(observer) {}

    bool cancelled() const { return cancelled_; }

    /// The same question outside the library's phases. Throws Error(kCancelled).
    void report(std::int32_t permille, std::string_view phase) {
        if (cancelled_ || !observer_.progress(permille, phase)) {
            throw Error(ErrorKind::kCancelled, "the build was cancelled");
        }
    }

    void phaseStart(char const* name, char const* parent, std::int32_t steps) noexcept override {
        change(name, [&] { progress_.start(name, parent == nullptr ? "" : parent, steps); });
    }

    bool stepComplete(char const* name, std::int32_t step) noexcept override {
        change(name, [&] { progress_.complete(name, step); });
        return !cancelled_;
    }

    void phaseFinish(char const* name) noexcept override {
        change(name, [&] { progress_.finish(name); });
    }

 private:
    template <typename Change>
    void change(char const* name, Change const& apply) noexcept {
        try {
            // The lock spans the report: numbers reach the observer in their order.
            std::lock_guard const lock(mutex_);
            apply();
            if (!observer_.progress(progress_.permille(), name)) {
                cancelled_ = true;
            }
        } catch (std::exception const&) {
            // Out of memory: the build itself will say so.
            return;
        }
    }

    BuildObserver& observer_;
    std::mutex mutex_;
    BuildProgress progress_;
    std::atomic<bool> cancelled_ = false;
};

class SerializedPlan final : public Plan {
 public:
    SerializedPlan(std::shared_ptr<Library const> library,
                   std::unique_ptr<nvinfer1::IHostMemory> memory, BuildReport report)
        : library_(std::move(library)), memory_(std::move(memory)), report_(std::move(report)) {}

    std::span<std::uint8_t const> bytes() const noexcept override {
        return {static_cast<std::uint8_t const*>(memory_->data()), memory_->size()};
    }

    BuildReport const& report() const noexcept override { return report_; }

 private:
    // The memory's destructor is the library's code, so the library is released after it.
    std::shared_ptr<Library const> library_;
    std::unique_ptr<nvinfer1::IHostMemory> memory_;
    BuildReport report_;
};

/// What one build owns. The diagnostics are first, since everything else reports to them.
class Build {
 public:
    Build(Library const& library, BuildRequest const& request, BuildObserver& observer)
        : request_(request), monitor_(observer), builder_(library.create_builder(logger())) {
        builder_->setErrorRecorder(&diagnostics_);
        network_.reset(builder_->createNetworkV2(strongly_typed()));
        config_.reset(builder_->createBuilderConfig());
        if (network_ == nullptr || config_ == nullptr) {
            diagnostics_.fail(ErrorKind::kDevice, "the builder cannot start");
        }
    }

    NetworkFacts read_graph(Library const& library) {
        monitor_.report(0, "Reading the graph");
        parser_ = library.create_parser(*network_, logger());
        auto const verbosity = static_cast<int>(nvinfer1::ILogger::Severity::kWARNING);
        bool const parsed = parser_->parseFromFile(request_.model_path.c_str(), verbosity);
        if (!parsed || parser_->getNbErrors() > 0) {
            diagnostics_.add_parser_errors(*parser_);
            diagnostics_.fail(ErrorKind::kModel, "the graph cannot be read");
        }
        monitor_.report(0, "Checking the graph");
        return check_network(*network_, request_);
    }

    void configure() {
        config_->setProgressMonitor(&monitor_);
        // A plan tells its layers only when it was built to.
        config_->setProfilingVerbosity(nvinfer1::ProfilingVerbosity::kDETAILED);
        // One stream for each session: what runs beside it belongs to other sessions.
        config_->setMaxAuxStreams(0);
        // What the graph calls f32 has all its bits.
        config_->clearFlag(nvinfer1::BuilderFlag::kTF32);
        for (Profile const& profile : request_.profiles) {
            add_profile(profile);
        }
        configure_flavour();
    }

    std::unique_ptr<nvinfer1::IHostMemory> run() {
        std::unique_ptr<nvinfer1::IHostMemory> memory(
            builder_->buildSerializedNetwork(*network_, *config_));
        if (monitor_.cancelled()) {
            throw Error(ErrorKind::kCancelled, "the build was cancelled");
        }
        if (memory == nullptr || memory->size() == 0) {
            diagnostics_.fail(ErrorKind::kModel, "no plan can be built");
        }
        return memory;
    }

    BuildReport report(NetworkFacts const& facts) const {
        BuildReport report;
        report.precision = facts.precision;
        report.position_rows = facts.position_rows;
        report.heads = facts.heads;
        LogFacts const told = diagnostics_.told();
        report.warnings = told.warnings;
        for (std::string const& warning : report.warnings) {
            if (warning.find(kLostInput) != std::string::npos) {
                throw Error(ErrorKind::kModel, "the graph does not use all of its inputs (" +
                                                   warning + "), so its vectors would be wrong");
            }
        }
        report.scratch_bytes = told.scratch_bytes;
        report.fusion = judge_fusion(facts.attentions, request_.profiles.size(), told.layers);
        report.layers = told.layers.all;
        report.timing_cache = timing_cache();
        return report;
    }

 private:
    void add_profile(Profile const& profile) {
        nvinfer1::IOptimizationProfile* const made = builder_->createOptimizationProfile();
        require(made != nullptr, diagnostics_, "no profile can be made");
        using Selector = nvinfer1::OptProfileSelector;
        bool done = true;
        for (TensorRule const& rule : kInputRules) {
            auto const set = [&](Selector selector, Shape shape) {
                nvinfer1::Dims const dims = dims_of(rule, shape, 0);
                done = made->setDimensions(rule.name, selector, dims) && done;
            };
            set(Selector::kMIN, {profile.rows.min, profile.length.min});
            set(Selector::kOPT, {profile.rows.opt, profile.length.opt});
            set(Selector::kMAX, {profile.rows.max, profile.length.max});
        }
        done = done && made->isValid() && config_->addOptimizationProfile(made) >= 0;
        require(done, diagnostics_, "profile " + to_string(profile) + " is refused");
    }

#ifdef DUOVEC_RTX
    void configure_flavour() {
        // NVIDIA asks for it where streams are captured; a graph that cannot be is refused here.
        config_->setFlag(nvinfer1::BuilderFlag::kREQUIRE_USER_ALLOCATION);
        auto const count = static_cast<std::int32_t>(request_.compute_capabilities.size());
        if (count == 0) {
            return;
        }
        bool done = config_->setNbComputeCapabilities(count);
        for (std::int32_t index = 0; index < count; ++index) {
            auto const wanted = static_cast<nvinfer1::ComputeCapability>(
                request_.compute_capabilities[static_cast<std::size_t>(index)]);
            done = done && config_->setComputeCapability(wanted, index);
        }
        require(done, diagnostics_, "these compute capabilities are refused");
    }

    std::vector<std::uint8_t> timing_cache() const { return {}; }
#else
    void configure_flavour() {
        using Level = nvinfer1::HardwareCompatibilityLevel;
        if (request_.hardware_compatible) {
            config_->setHardwareCompatibilityLevel(Level::kAMPERE_PLUS);
        }
        if (request_.same_compute_capability) {
            // The oldest headers have no name for it, and their library no such level.
            Level const same = static_cast<Level>(2);
            config_->setHardwareCompatibilityLevel(same);
            require(config_->getHardwareCompatibilityLevel() == same, diagnostics_,
                    "no plan for all GPUs of a compute capability can be built");
        }
        if (request_.optimization_level >= 0) {
            config_->setBuilderOptimizationLevel(request_.optimization_level);
            require(config_->getBuilderOptimizationLevel() == request_.optimization_level,
                    diagnostics_, "this optimization level is refused");
        }
        if (request_.workspace_bytes > 0) {
            config_->setMemoryPoolLimit(nvinfer1::MemoryPoolType::kWORKSPACE,
                                        static_cast<std::size_t>(request_.workspace_bytes));
        }
        if (request_.version_compatible) {
            config_->setFlag(nvinfer1::BuilderFlag::kVERSION_COMPATIBLE);
        }
        auto const& blob = request_.timing_cache;
        cache_.reset(config_->createTimingCache(blob.data(), blob.size()));
        // A cache of another device or version is refused; then everything is measured anew.
        if (cache_ == nullptr || !config_->setTimingCache(*cache_, false)) {
            cache_.reset(config_->createTimingCache(nullptr, 0));
            require(cache_ != nullptr && config_->setTimingCache(*cache_, false), diagnostics_,
                    "no timing cache can be made");
        }
    }

    std::vector<std::uint8_t> timing_cache() const {
        return copied(std::unique_ptr<nvinfer1::IHostMemory>(cache_->serialize()));
    }
#endif

    // Destroyed from the last to the first: the recorder outlives all that reports to it, the
    // network its parser, the builder what it made.
    Diagnostics diagnostics_;
    BuildRequest const& request_;
    Monitor monitor_;
    std::unique_ptr<nvinfer1::IBuilder> builder_;
    std::unique_ptr<nvinfer1::INetworkDefinition> network_;
    std::unique_ptr<nvinfer1::IBuilderConfig> config_;
#ifndef DUOVEC_RTX
    std::unique_ptr<nvinfer1::ITimingCache> cache_;
#endif
    std::unique_ptr<nvonnxparser::IParser> parser_;
};

}  // namespace

std::unique_ptr<Plan> build_plan(std::shared_ptr<Library const> library,
                                 BuildRequest const& request, BuildObserver& observer) {
    check_profiles(request.profiles, request.length_max);
    // The log does not tell which build a line belongs to.
    static std::mutex one_at_a_time;
    std::lock_guard const lock(one_at_a_time);
    Build build(*library, request, observer);
    NetworkFacts const facts = build.read_graph(*library);
    build.configure();
    auto memory = build.run();
    BuildReport report = build.report(facts);
    return std::make_unique<SerializedPlan>(std::move(library), std::move(memory),
                                            std::move(report));
}

}  // namespace duovec::DUOVEC_FLAVOUR
