// The execution contexts of the TensorRT stand-ins. What they refuse and say is what was found in
// libtensorrt_rtx.so.1 (1.7.1.116); libnvinfer_lean.so.11 (11.4.0.106) has the same runtime.

#include <algorithm>
#include <chrono>
#include <thread>

#include "testing/standin_tensorrt.h"

namespace duovec::standin {
namespace {

bool within(std::vector<std::int64_t> const& sizes, PlanTensor const& tensor,
            ShapeRange const& range) {
    auto const least = tensor.sizes_of(range.min);
    auto const most = tensor.sizes_of(range.max);
    return sizes.size() == least.size() &&
           std::ranges::equal(least, sizes, std::ranges::less_equal()) &&
           std::ranges::equal(sizes, most, std::ranges::less_equal());
}

void expect_aligned(void const* address, std::string const& what) {
    if (reinterpret_cast<std::uintptr_t>(address) % kAlignment != 0) {
        contract(what + " is not at a multiple of " + std::to_string(kAlignment) + " bytes");
    }
}

}  // namespace

// The flag is relaxed on purpose: it must not be what makes callers' threads take turns, or the
// thread sanitizer could not see that they do not.
class StandinContext::Guard {
 public:
    explicit Guard(StandinContext const& context) : context_(context) {
        if (context_.busy_.exchange(true, std::memory_order_relaxed)) {
            contract("context " + context_.use_->name + " is used by two threads at once");
        }
    }
    ~Guard() { context_.busy_.store(false, std::memory_order_relaxed); }
    Guard(Guard const&) = delete;
    Guard& operator=(Guard const&) = delete;

 private:
    StandinContext const& context_;
};

StandinContext::StandinContext(StandinEngine const& engine, Reporter const& parent,
                               ExecutionContextAllocationStrategy strategy,
                               std::atomic<int>& contexts)
    : engine_(engine),
      plan_(engine.plan()),
      reporter_(parent.logger(), parent.recorder()),
      strategy_(strategy),
      contexts_(contexts),
      bindings_(plan_->tensors.size()) {
    static std::atomic<int> made = 0;
    use_->name = std::to_string(++made);
    use_->device = engine.device();
    ++contexts_;
    disturb_captures(engine.device());
    std::this_thread::sleep_for(std::chrono::microseconds(value_of("context_us", 0)));
    reserve(engine.device(), bytes_);
}

StandinContext::~StandinContext() noexcept {
    Guard const guard(*this);
    expect_device("an execution context");
    expect_unused(*use_, "is destroyed");
    disturb_captures(engine_.device());
    reserve(engine_.device(), -bytes_);
    --contexts_;
}

void StandinContext::setErrorRecorder(IErrorRecorder* recorder) noexcept {
    Guard const guard(*this);
    reporter_.set_recorder(recorder);
}

void StandinContext::setProfiler(IProfiler* profiler) noexcept {
    Guard const guard(*this);
    expect_not_captured(*use_, "setProfiler");
    profiler_ = profiler;
}

bool StandinContext::setOptimizationProfileAsync(std::int32_t profile,
                                                 cudaStream_t stream) noexcept {
    Guard const guard(*this);
    expect_usable(stream, "setOptimizationProfileAsync");
    expect_not_captured(*use_, "setOptimizationProfileAsync");
    if (static_cast<std::size_t>(profile) >= plan_->profiles.size()) {
        return reporter_.fail(ErrorCode::kINVALID_ARGUMENT,
                              "setOptimizationProfileAsync: no such profile");
    }
    if (is_capturing(stream)) {
        invalidate_capture(stream);
        return reporter_.fail(ErrorCode::kFAILED_EXECUTION,
                              "setOptimizationProfileAsync: the stream captures");
    }
    Operation change;
    change.name = "change of profile";
    change.context = use_;
    cudaError_t const error = submit(stream, change);
    if (error != cudaSuccess) {
        return reporter_.fail(ErrorCode::kFAILED_EXECUTION, text_of(error));
    }
    profile_ = profile;
    primed_ = false;
    for (Binding& binding : bindings_) {
        binding.sizes.reset();
        binding.refused = false;
    }
    return true;
}

StandinContext::Binding* StandinContext::find(char const* name) {
    PlanTensor const* const tensor = engine_.find(name);
    return tensor == nullptr ? nullptr : &bindings_[tensor - plan_->tensors.data()];
}

bool StandinContext::setInputShape(char const* name, Dims const& dims) noexcept {
    Guard const guard(*this);
    expect_not_captured(*use_, "setInputShape");
    Binding* const binding = find(name);
    PlanTensor const* const tensor = engine_.find(name);
    if (binding == nullptr || !tensor->input) {
        return reporter_.fail(ErrorCode::kINVALID_ARGUMENT, "setInputShape: not an input tensor");
    }
    std::vector<std::int64_t> const sizes = sizes_of(dims);
    binding->refused = !within(sizes, *tensor, plan_->profiles[static_cast<std::size_t>(profile_)]);
    if (binding->refused) {
        primed_ = false;
        return reporter_.fail(ErrorCode::kINVALID_ARGUMENT,
                              "setInputShape: it does not satisfy any optimization profiles.");
    }
    primed_ = primed_ && binding->sizes == sizes;
    binding->sizes = sizes;
    return true;
}

std::optional<Shape> StandinContext::shape() const {
    for (Binding const& binding : bindings_) {
        if (binding.sizes) {
            return Shape{static_cast<std::int32_t>(binding.sizes->front()),
                         static_cast<std::int32_t>(binding.sizes->back())};
        }
    }
    return std::nullopt;
}

bool StandinContext::setTensorAddress(char const* name, void* data) noexcept {
    Guard const guard(*this);
    expect_not_captured(*use_, "setTensorAddress");
    Binding* const binding = find(name);
    if (binding == nullptr) {
        return reporter_.fail(ErrorCode::kINVALID_ARGUMENT,
                              "setTensorAddress: neither input nor output");
    }
    expect_aligned(data, std::string("tensor ") + name);
    primed_ = primed_ && binding->address == data;
    binding->address = data;
    return true;
}

// The size is compared with what the profile needs that is selected now, and what is too small is
// not stored.
void StandinContext::setDeviceMemoryV2(void* memory, std::int64_t size) noexcept {
    Guard const guard(*this);
    expect_not_captured(*use_, "setDeviceMemoryV2");
    if (strategy_ != ExecutionContextAllocationStrategy::kUSER_MANAGED) {
        contract("setDeviceMemoryV2 of a context that manages its own memory");
    }
    expect_aligned(memory, "scratch");
    if (memory == nullptr && scratch_needed() > 0) {
        reporter_.fail(ErrorCode::kINVALID_ARGUMENT,
                       "setDeviceMemoryV2: Cannot set memory to nullptr.");
        return;
    }
    if (scratch_needed() > size) {
        reporter_.fail(ErrorCode::kINVALID_ARGUMENT,
                       "setDeviceMemoryV2: The provided memory size is too small. Provided " +
                           std::to_string(size) + ", required " + std::to_string(scratch_needed()));
        return;
    }
    primed_ = primed_ && scratch_ == memory && scratch_bytes_ == size;
    scratch_ = memory;
    scratch_bytes_ = size;
}

std::int64_t StandinContext::scratch_needed() const {
    return plan_->scratch[static_cast<std::size_t>(profile_)];
}

Shape StandinContext::expect_shape() const {
    Shape const shape = this->shape().value_or(Shape{});
    for (std::size_t index = 0; index < bindings_.size(); ++index) {
        PlanTensor const& tensor = plan_->tensors[index];
        Binding const& binding = bindings_[index];
        if (binding.address == nullptr) {
            contract("enqueueV3 while tensor " + tensor.name + " has no address");
        }
        if (!tensor.input) {
            continue;
        }
        if (!binding.sizes || binding.refused) {
            contract("enqueueV3 while input " + tensor.name + " has no shape, or a refused one");
        }
        if (*binding.sizes != tensor.sizes_of(shape)) {
            contract("enqueueV3 while inputs have different shapes");
        }
    }
    return shape;
}

void StandinContext::add_scratch(Operation& operation) const {
    std::int64_t const needed = scratch_needed();
    if (needed == 0 || strategy_ != ExecutionContextAllocationStrategy::kUSER_MANAGED) {
        return;
    }
    if (scratch_bytes_ < needed) {
        contract("enqueueV3 with " + std::to_string(scratch_bytes_) + " bytes of scratch, " +
                 std::to_string(needed) + " are needed");
    }
    operation.ranges.push_back(
        {scratch_, static_cast<std::size_t>(needed), true, MemoryKind::kDevice, "scratch"});
}

// None for a plan with other outputs than dense vectors and the weights of tokens, or with such in
// half precision: a GPU's kernel knows no more.
std::optional<KernelRun> StandinContext::kernels(Shape shape) const {
    auto const is_other = [](PlanTensor const& one) {
        return !one.input && (one.element != Element::kFloat32 ||
                              (one.dims.size() > 2 && one.name != kTensorRules[kDense].name));
    };
    if (std::ranges::any_of(plan_->tensors, is_other)) {
        return std::nullopt;
    }
    std::vector<void*> memory;
    for (Binding const& binding : bindings_) {
        memory.push_back(const_cast<void*>(binding.address));
    }
    return KernelRun{arguments_of(*plan_, shape, memory),
                     std::max(1, static_cast<int>(plan_->layers.size()))};
}

Operation StandinContext::operation(Shape shape) const {
    Operation run;
    run.name = "execution of context " + use_->name;
    run.context = use_;
    run.execution = true;
    for (std::size_t index = 0; index < bindings_.size(); ++index) {
        PlanTensor const& tensor = plan_->tensors[index];
        run.ranges.push_back({bindings_[index].address, tensor.bytes_of(shape), !tensor.input,
                              MemoryKind::kDevice, "tensor " + tensor.name});
    }
    add_scratch(run);
    run.kernels = kernels(shape);
    run.body = [plan = plan_, shape](std::vector<void*> const& memory, bool nan) {
        run_plan(*plan, shape, memory, nan);
    };
    return run;
}

bool StandinContext::enqueueV3(cudaStream_t stream) noexcept {
    Guard const guard(*this);
    expect_usable(stream, "enqueueV3");
    expect_not_captured(*use_, "enqueueV3");
    bool const capturing = is_capturing(stream);
    auto const fail = [&](std::string const& text) {
        invalidate_capture(stream);
        return reporter_.fail(ErrorCode::kFAILED_EXECUTION, "enqueueV3: " + text);
    };
    if (fires("enqueue_fails")) {
        if (reporter_.recorder() != nullptr) {
            reporter_.log(ILogger::Severity::kERROR, "enqueueV3: scripted: it fails");
        }
        return fail("scripted: it fails");
    }
    if (capturing && is_set("capture_enqueue_fails")) {
        return fail("scripted: it cannot be captured");
    }
    Shape const shape = expect_shape();
    bool const user_managed = strategy_ == ExecutionContextAllocationStrategy::kUSER_MANAGED;
    if (user_managed && scratch_needed() > 0 && scratch_ == nullptr) {
        return fail("the strategy is kUSER_MANAGED: setDeviceMemoryV2 should be called before");
    }
#ifdef DUOVEC_RTX
    std::string const kernel = std::to_string(shape.rows) + "x" + std::to_string(shape.length);
    if (compiles_ && !capturing && !primed_ && (cache_ == nullptr || cache_->add(kernel))) {
        add_count("compile");
    }
#endif
    Operation const run = operation(shape);
#ifdef DUOVEC_RTX
    // The words of libtensorrt_rtx.so.1 (1.7.1.116).
    if (capturing && !plan_->user_allocation) {
        return fail(
            "the stream is capturing a CUDA graph and the allocation was not stream-ordered");
    }
#endif
    if (capturing && !primed_) {
        return fail("it cannot be captured before it ran once with these shapes and addresses");
    }
    cudaError_t const error = submit(stream, run);
    if (error != cudaSuccess) {
        return fail(text_of(error));
    }
    if (fires("enqueue_fails_late")) {
        return fail("scripted: it fails after its first kernels");
    }
    if (!capturing) {
        primed_ = true;
        add_count("enqueue");
    }
    // What launching the kernels one by one takes of the caller.
    std::this_thread::sleep_for(std::chrono::microseconds(value_of("enqueue_us", 0)));
    if (profiler_ != nullptr && !capturing) {
        // With a profiler the call waits for the layers' times. These are made up.
        static_cast<void>(synchronize(stream));
        float milliseconds = 0;
        for (std::string const& layer : plan_->layers) {
            profiler_->reportLayerTime(layer.c_str(), milliseconds += 0.25F);
        }
    }
    return true;
}

}  // namespace duovec::standin
