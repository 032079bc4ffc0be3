// What one worker runs: pinned and device memory for its largest shape, an execution context for
// each profile, and one more with a captured graph for each shape whose graph saves time.
//
// It has two streams, one for urgent runs, of which one is used at a time. So all contexts of a
// session share one block of scratch memory. A context that was captured is never touched again:
// the graph holds what it had bound.
//
// Thread safety: none; it belongs to the thread that opened it. Ownership: it holds all that it
// makes; the engine must outlive it. Preconditions: none.

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda.h"
#include "diagnostics.h"
#include "engine.h"
#include "flavour.h"

namespace duovec::DUOVEC_FLAVOUR {

class StreamSession final : public Session {
 public:
    /// See Engine::open_session.
    StreamSession(LoadedEngine const& engine, SessionRequest const& request);
    ~StreamSession() override;

    StagedInputs stage(Shape shape) override;
    RunTimes run(Urgency urgency, Waits waiting, Copied copied) override;
    RunOutput output(TensorName name) const noexcept override;
    SessionReport report() const override;

    /// See Engine::layer_times. The rows are empty.
    std::vector<LayerTime> layer_times(Shape shape);

 private:
    /// Destroys a context once the stream has done its work; on a lost device it leaves it where it
    /// is, since the library's destructors cannot be trusted there.
    struct Retire {
        StreamSession* session;
        void operator()(nvinfer1::IExecutionContext* context) const noexcept;
    };
    using Context = std::unique_ptr<nvinfer1::IExecutionContext, Retire>;

    /// Members are destroyed last first: the graph before the context that it uses.
    struct Captured {
        Context context;
        CudaGraphExec graph;
        /// Of a long run only when the graph was measured to save time.
        bool is_worth_keeping = true;
    };

    /// A shape that was asked for when the session was opened.
    struct BucketState {
        Shape shape;
        /// The shortest of its runs, which is what it takes when nothing disturbs it.
        std::chrono::steady_clock::duration took = std::chrono::steady_clock::duration::max();
        std::uint64_t runs = 0;
        std::size_t profile = 0;
        Layout layout;
        /// Until its graph is captured or refused.
        bool wants_graph = false;
        std::optional<Captured> captured;
    };

    /// The context of a profile that some shape needs, and the bucket that it is bound to.
    struct ProfileContext {
        Context context;
        BucketState const* bound = nullptr;
    };

    void add_buckets(SessionRequest const& request);
    void allocate();
    Context create_context(std::size_t profile);
    void bind(nvinfer1::IExecutionContext& context, BucketState const& bucket);
    void enqueue(nvinfer1::IExecutionContext& context);
    void copy_in();
    void copy_out(Copied copied);
    RunTimes execute(Waits waiting, Copied copied);
    void compute();
    void try_capture(BucketState& bucket);
    Captured capture(BucketState const& bucket);
    void launch(Captured const& captured);
    std::chrono::steady_clock::duration shortest(std::function<void()> const& start);
    void synchronize();
    void settle();
    std::int64_t nanoseconds(CudaEvent const& from, CudaEvent const& to) const;

    // The order is that of destruction, last first: graphs and contexts go before the memory and
    // the stream that they use, and all before what the library reports errors to.
    LoadedEngine const& engine_;
    Cuda const& cuda_;
    std::chrono::nanoseconds const long_run_;
    Diagnostics recorder_{Hearing::kRecorder};
    CudaStream usual_;
    CudaStream urgent_;
    /// One of the two; the other has no work.
    cudaStream_t stream_ = nullptr;
    CudaEvent started_;
    CudaEvent copied_in_;
    CudaEvent computed_;
    /// Who waits for it sleeps.
    CudaEvent copied_out_;
    PinnedMemory pinned_inputs_;
    PinnedMemory pinned_outputs_;
    DeviceMemory inputs_;
    DeviceMemory outputs_;
    DeviceMemory scratch_;
    std::int64_t scratch_bytes_ = 0;
    /// One for each profile.
    std::vector<ProfileContext> contexts_;
    std::map<Shape, BucketState> buckets_;
    BucketState* staged_ = nullptr;
    /// But for the counts of shapes.
    SessionReport report_;
};

}  // namespace duovec::DUOVEC_FLAVOUR
