#include "session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "error.h"

namespace duovec::DUOVEC_FLAVOUR {
namespace {

/// Graphs need no flag: they are launched on the session's stream alone.
constexpr unsigned long long kNoFlags = 0;

using SteadyClock = std::chrono::steady_clock;

/// Of the short runs of a shape one of so many is timed: events take a part of them.
constexpr std::uint64_t kTimedPart = 16;
/// What the graph of a longer run must save to be worth its memory.
constexpr double kSaved = 0.02;
/// The shortest of so many runs counts; other programs only ever make one longer.
constexpr int kTimedRuns = 3;

/// Layers are timed in so many runs, after one that prepares them.
constexpr int kProfiledRuns = 10;

/// Adds up what the library tells of each layer in each run.
class LayerClock final : public nvinfer1::IProfiler {
 public:
    void reportLayerTime(char const* name, float milliseconds) noexcept override {
        auto const same = [&](LayerTime const& layer) { return layer.name == name; };
        auto found = std::ranges::find_if(times_, same);
        if (found == times_.end()) {
            found = times_.insert(found, {name, 0});
        }
        found->microseconds += double(milliseconds) * 1e3;
    }

    std::vector<LayerTime> mean(int runs) const {
        std::vector<LayerTime> means = times_;
        for (LayerTime& layer : means) {
            layer.microseconds /= runs;
        }
        return means;
    }

 private:
    std::vector<LayerTime> times_;
};

using Severity = nvinfer1::ILogger::Severity;

void say(Severity severity, std::string const& line) { logger().log(severity, line.c_str()); }

void* at(void* block, Region const& place) { return static_cast<std::byte*>(block) + place.offset; }

template <typename Number>
std::span<Number> part(void* block, Region const& place) {
    return {static_cast<Number*>(at(block, place)), place.bytes / sizeof(Number)};
}

}  // namespace

StreamSession::StreamSession(LoadedEngine const& engine, SessionRequest const& request)
    : engine_(engine), cuda_(engine.cuda()), long_run_(request.long_run) {
    cuda_.use(engine.device());
    usual_ = create_stream(cuda_, StreamPriority::kLeast);
    urgent_ = create_stream(cuda_, StreamPriority::kGreatest);
    stream_ = usual_.get();
    for (CudaEvent* const event : {&started_, &copied_in_, &computed_}) {
        *event = create_event(cuda_);
    }
    copied_out_ = create_event(cuda_, cudaEventBlockingSync);
    add_buckets(request);
    allocate();
    contexts_.resize(engine.profiles().size());
    for (auto const& [shape, bucket] : buckets_) {
        Context& context = contexts_[bucket.profile].context;
        if (context == nullptr) {
            context = create_context(bucket.profile);
        }
    }
}

StreamSession::~StreamSession() {
    // Nothing may be freed while the device still uses it; on a lost device nothing runs.
    static_cast<void>(cuda_.call().cudaStreamSynchronize(stream_));
}

void StreamSession::Retire::operator()(nvinfer1::IExecutionContext* context) const noexcept {
    std::lock_guard const alone(session->engine_.contexts());
    // An enqueue that failed may have started a part of its work.
    if (session->cuda_.call().cudaStreamSynchronize(session->stream_) != cudaSuccess) {
        session->engine_.lose();
    }
    if (!session->engine_.is_lost()) {
        delete context;
    }
}

void StreamSession::add_buckets(SessionRequest const& request) {
    for (Shape const shape : request.shapes) {
        auto const profile = choose_profile(engine_.profiles(), shape.rows, shape.length);
        if (!profile) {
            throw Error(ErrorKind::kRequest, "no profile of the plan covers " + to_string(shape));
        }
        BucketState bucket;
        bucket.shape = shape;
        bucket.profile = *profile;
        bucket.layout = lay_out(shape, engine_.tensors());
        bucket.wants_graph = tokens_of(shape) <= request.captured_tokens_max;
        buckets_.emplace(shape, std::move(bucket));
    }
    if (buckets_.empty()) {
        throw Error(ErrorKind::kRequest, "a session needs at least one shape");
    }
}

void StreamSession::allocate() {
    std::size_t inputs = 0;
    std::size_t outputs = 0;
    for (auto const& [shape, bucket] : buckets_) {
        inputs = std::max(inputs, bucket.layout.inputs_bytes);
        outputs = std::max(outputs, bucket.layout.outputs_bytes);
        auto const index = static_cast<std::int32_t>(bucket.profile);
        std::int64_t const needed = engine_.vendor().getDeviceMemorySizeForProfileV2(index);
        scratch_bytes_ = std::max(scratch_bytes_, needed);
    }
    // What it takes must not be taken for that of a context beside it.
    std::lock_guard const alone(engine_.contexts());
    pinned_inputs_ = allocate_pinned(cuda_, inputs, "inputs");
    pinned_outputs_ = allocate_pinned(cuda_, outputs, "outputs");
    inputs_ = allocate_device(cuda_, inputs, "inputs");
    outputs_ = allocate_device(cuda_, outputs, "outputs");
    if (scratch_bytes_ > 0) {
        scratch_ = allocate_device(cuda_, static_cast<std::size_t>(scratch_bytes_), "scratch");
    }
}

StreamSession::Context StreamSession::create_context(std::size_t profile) {
    using Strategy = nvinfer1::ExecutionContextAllocationStrategy;
    std::lock_guard const alone(engine_.contexts());
    std::size_t const free_before = cuda_.free_bytes();
    auto const begin = SteadyClock::now();
    nvinfer1::ICudaEngine& engine = engine_.vendor();
    recorder_.clear();
    engine_.recorder().clear();
#ifdef DUOVEC_RTX
    using Specialization = nvinfer1::DynamicShapesKernelSpecializationStrategy;
    std::unique_ptr<nvinfer1::IRuntimeConfig> const config(engine.createRuntimeConfig());
    if (config == nullptr) {
        throw Error(ErrorKind::kInternal, "TensorRT-RTX gives no runtime configuration");
    }
    config->setExecutionContextAllocationStrategy(Strategy::kUSER_MANAGED);
    // A shape's first run waits for its best kernels, so that the times of later ones stay as they
    // are when they are measured.
    config->setDynamicShapesKernelSpecializationStrategy(Specialization::kEAGER);
    if (engine_.kernel_cache() != nullptr) {
        static_cast<void>(config->setRuntimeCache(*engine_.kernel_cache()));
    }
    Context context(engine.createExecutionContext(config.get()), {this});
#else
    Context context(engine.createExecutionContext(Strategy::kUSER_MANAGED), {this});
#endif
    auto const index = static_cast<std::int32_t>(profile);
    if (context != nullptr) {
        context->setErrorRecorder(&recorder_);
    }
    bool done = context != nullptr && context->setOptimizationProfileAsync(index, stream_);
    if (done) {
        // The library asks for this before a context with another profile is used.
        synchronize();
        // It compares the size with what the chosen profile needs, and gives no result: the
        // recorder tells a refusal. trtexec takes these steps in this order too.
        context->setDeviceMemoryV2(scratch_.get(), scratch_bytes_);
        done = recorder_.getNbErrors() == 0;
    }
    if (!done) {
        cuda_.check(cuda_.call().cudaGetLastError(), "create an execution context");
        Diagnostics const& said = context == nullptr ? engine_.recorder() : recorder_;
        said.fail(ErrorKind::kInternal, std::string(kProduct) + " gives no execution context");
    }
    auto const took = SteadyClock::now() - begin;
    auto const bytes = std::int64_t(free_before) - std::int64_t(cuda_.free_bytes());
    ++report_.contexts;
    report_.contexts_took += took;
    report_.contexts_bytes += std::max(bytes, std::int64_t{0});
    using std::chrono::milliseconds;
    say(Severity::kINFO,
        "context " + std::to_string(report_.contexts) + ", of profile " + std::to_string(profile) +
            ": " + std::to_string(bytes) + " bytes of the device, " +
            std::to_string(std::chrono::duration_cast<milliseconds>(took).count()) + " ms");
    return context;
}

StagedInputs StreamSession::stage(Shape shape) {
    auto const found = buckets_.find(shape);
    if (found == buckets_.end()) {
        throw Error(ErrorKind::kRequest, "the session was not opened for " + to_string(shape));
    }
    staged_ = &found->second;
    void* const block = pinned_inputs_.get();
    auto const& tensors = staged_->layout.tensors;
    return {part<std::int32_t>(block, tensors[kInputIds]),
            part<std::int32_t>(block, tensors[kPositions]),
            part<std::int32_t>(block, tensors[kSegments]),
            part<float>(block, tensors[kSpanWeights])};
}

RunTimes StreamSession::run(Urgency urgency, Waits waiting, Copied copied) {
    if (staged_ == nullptr) {
        throw Error(ErrorKind::kRequest, "no shape was staged");
    }
    if (recorder_.getNbErrors() > 0) {
        recorder_.clear();
    }
    try {
        stream_ = usual_.get();
        if (staged_->wants_graph) {
            try_capture(*staged_);
        }
        // A graph runs with the priority of the stream that it is launched on.
        stream_ = urgency == Urgency::kUrgent ? urgent_.get() : usual_.get();
        return execute(waiting, copied);
    } catch (Error const& error) {
        if (error.kind() == ErrorKind::kPoisoned) {
            engine_.lose();
        } else {
            settle();
        }
        throw;
    }
}

RunOutput StreamSession::output(TensorName name) const noexcept {
    auto const& type = engine_.tensors()[name];
    if (staged_ == nullptr || !type) {
        return {};
    }
    void* const block = pinned_outputs_.get();
    return {type->element, part<std::byte const>(block, staged_->layout.tensors[name])};
}

SessionReport StreamSession::report() const {
    SessionReport report = report_;
    for (auto const& [shape, bucket] : buckets_) {
        ++(bucket.captured ? report.captured : report.plain);
    }
    return report;
}

std::vector<LayerTime> StreamSession::layer_times(Shape shape) {
    StagedInputs const staged = stage(shape);
    std::ranges::fill(staged.input_ids, 0);
    std::ranges::fill(staged.positions, 0);
    std::ranges::fill(staged.segments, -1);
    std::ranges::fill(staged.span_weights, 0.0F);
    run(Urgency::kUsual, Waits::kByTime, Copied::kAll);
    LayerClock clock;
    nvinfer1::IExecutionContext& context = *contexts_[staged_->profile].context;
    context.setProfiler(&clock);
    for (int turn = 0; turn < kProfiledRuns; ++turn) {
        run(Urgency::kUsual, Waits::kByTime, Copied::kAll);
    }
    context.setProfiler(nullptr);
    std::vector<LayerTime> times = clock.mean(kProfiledRuns);
    if (times.empty()) {
        throw Error(ErrorKind::kModel, std::string(kProduct) + " tells no times of layers");
    }
    return times;
}

RunTimes StreamSession::execute(Waits waiting, Copied copied) {
    CudaFunctions const& call = cuda_.call();
    BucketState& bucket = *staged_;
    bool const sleeps = bucket.took >= long_run_ || waiting == Waits::kAsleep;
    bool const is_timed = sleeps || bucket.runs % kTimedPart == 0;
    auto const record = [&](CudaEvent const& event) {
        if (is_timed) {
            cuda_.check(call.cudaEventRecord(event.get(), stream_), "record an event");
        }
    };
    auto const begin = SteadyClock::now();
    record(started_);
    copy_in();
    record(copied_in_);
    compute();
    record(computed_);
    copy_out(copied);
    record(copied_out_);
    if (sleeps) {
        cuda_.check(call.cudaEventSynchronize(copied_out_.get()), "wait for the device");
    } else {
        synchronize();
    }
    bucket.took = std::min(bucket.took, SteadyClock::now() - begin);
    ++bucket.runs;
    if (!is_timed) {
        return {};
    }
    return {nanoseconds(started_, copied_in_), nanoseconds(copied_in_, computed_),
            nanoseconds(computed_, copied_out_)};
}

void StreamSession::copy_in() {
    cuda_.check(
        cuda_.call().cudaMemcpyAsync(inputs_.get(), pinned_inputs_.get(),
                                     staged_->layout.inputs_bytes, cudaMemcpyHostToDevice, stream_),
        "copy the inputs");
}

void StreamSession::copy_out(Copied copied) {
    std::size_t const bytes = copied == Copied::kAll
                                  ? staged_->layout.outputs_bytes
                                  : staged_->layout.tensors[kTokenVectors].offset;
    cuda_.check(cuda_.call().cudaMemcpyAsync(pinned_outputs_.get(), outputs_.get(), bytes,
                                             cudaMemcpyDeviceToHost, stream_),
                "copy the outputs");
}

void StreamSession::compute() {
    if (staged_->captured) {
        launch(*staged_->captured);
        return;
    }
    ProfileContext& profile = contexts_[staged_->profile];
    if (profile.bound != staged_) {
        profile.bound = nullptr;
        bind(*profile.context, *staged_);
        profile.bound = staged_;
    }
    enqueue(*profile.context);
}

void StreamSession::bind(nvinfer1::IExecutionContext& context, BucketState const& bucket) {
    bool done = true;
    for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
        TensorRule const& rule = kTensorRules[tensor];
        if (!engine_.tensors()[tensor]) {
            continue;
        }
        bool const is_input = tensor < kInputs;
        done =
            done && (!is_input || context.setInputShape(rule.name, dims_of(rule, bucket.shape, 0)));
        void* const block = is_input ? inputs_.get() : outputs_.get();
        done =
            done && context.setTensorAddress(rule.name, at(block, bucket.layout.tensors[tensor]));
    }
    if (!done) {
        recorder_.fail(ErrorKind::kTransient, std::string(kProduct) + " does not take the shape");
    }
}

void StreamSession::enqueue(nvinfer1::IExecutionContext& context) {
    if (context.enqueueV3(stream_)) {
        return;
    }
    cuda_.check(cuda_.call().cudaGetLastError(), "enqueue a batch");
    recorder_.fail(ErrorKind::kTransient, std::string(kProduct) + " cannot enqueue a batch");
}

void StreamSession::try_capture(BucketState& bucket) {
    std::lock_guard const alone(engine_.contexts());
    bucket.wants_graph = false;
    // A second time, since what ended the capture may have been somebody else's.
    for (bool const is_last : {false, true}) {
        try {
            Captured captured = capture(bucket);
            if (captured.is_worth_keeping) {
                bucket.captured.emplace(std::move(captured));
            }
            return;
        } catch (Error const& error) {
            if (error.kind() == ErrorKind::kPoisoned) {
                throw;
            }
            settle();
            if (is_last) {
                say(Severity::kWARNING,
                    "the graph of " + to_string(bucket.shape) +
                        " cannot be captured, it runs without: " + error.what());
                report_.refused = report_.refused.empty() ? error.what() : report_.refused;
            }
        }
    }
}

StreamSession::Captured StreamSession::capture(BucketState const& bucket) {
    CudaFunctions const& call = cuda_.call();
    Captured captured;
    captured.context = create_context(bucket.profile);
    bind(*captured.context, bucket);
    // TensorRT asks for one plain run after a change of shape; it prepares what the graph records.
    auto const begin = SteadyClock::now();
    copy_in();
    enqueue(*captured.context);
    synchronize();
    bool const is_long = SteadyClock::now() - begin >= long_run_;
    auto const plain =
        is_long ? shortest([&] { enqueue(*captured.context); }) : SteadyClock::duration();
    cuda_.check(call.cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                "begin a capture");
    bool const enqueued = captured.context->enqueueV3(stream_);
    // Whatever happened, the capture must end before the stream can be used again.
    cudaGraph_t recorded = nullptr;
    cudaError_t const ended = call.cudaStreamEndCapture(stream_, &recorded);
    CudaGraph const graph(cuda_, recorded);
    cuda_.check(ended, "end a capture");
    if (!enqueued || recorded == nullptr) {
        recorder_.fail(ErrorKind::kTransient, std::string(kProduct) + " cannot be captured");
    }
    cudaGraphExec_t launchable = nullptr;
    cuda_.check(call.cudaGraphInstantiateWithFlags(&launchable, recorded, kNoFlags),
                "instantiate a graph");
    captured.graph = CudaGraphExec(cuda_, launchable);
    if (plain >= long_run_) {
        captured.is_worth_keeping = shortest([&] { launch(captured); }) < (1 - kSaved) * plain;
    }
    return captured;
}

SteadyClock::duration StreamSession::shortest(std::function<void()> const& start) {
    auto best = SteadyClock::duration::max();
    for (int turn = 0; turn < kTimedRuns; ++turn) {
        auto const begin = SteadyClock::now();
        start();
        synchronize();
        best = std::min(best, SteadyClock::now() - begin);
    }
    return best;
}

void StreamSession::launch(Captured const& captured) {
    cuda_.check(cuda_.call().cudaGraphLaunch(captured.graph.get(), stream_),
                "launch a captured graph");
}

void StreamSession::synchronize() {
    cuda_.check(cuda_.call().cudaStreamSynchronize(stream_), "wait for the device");
}

/// After a failure: nothing may run on, and an error that sticks shows itself again.
void StreamSession::settle() {
    for (ProfileContext& profile : contexts_) {
        profile.bound = nullptr;
    }
    static_cast<void>(cuda_.call().cudaGetLastError());
    cudaError_t const status = cuda_.call().cudaStreamSynchronize(stream_);
    if (status != cudaSuccess) {
        engine_.lose();
        throw Error(ErrorKind::kPoisoned, "the device is lost: " + cuda_.describe(status));
    }
}

std::int64_t StreamSession::nanoseconds(CudaEvent const& from, CudaEvent const& to) const {
    float milliseconds = 0;
    cuda_.check(cuda_.call().cudaEventElapsedTime(&milliseconds, from.get(), to.get()),
                "read an event's time");
    return static_cast<std::int64_t>(double(milliseconds) * 1e6);
}

}  // namespace duovec::DUOVEC_FLAVOUR
