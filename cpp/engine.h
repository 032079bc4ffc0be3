// A deserialized plan on one device: what all its sessions share.
//
// Thread safety: immutable once loaded, but for whether its device is lost, the mutex of contexts,
// and the kernels, which the library guards itself.
// Ownership: it holds the vendor's runtime and engine, which are destroyed after every context made
// from them; sessions must not outlive it. Preconditions: the library outlives it.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cuda.h"
#include "diagnostics.h"
#include "flavour.h"
#include "library.h"

namespace duovec::DUOVEC_FLAVOUR {

class LoadedEngine final : public Engine {
 public:
    /// See Backend::load.
    LoadedEngine(std::shared_ptr<Library const> library, EngineRequest const& request);
    ~LoadedEngine() override;

    TensorTypes const& tensors() const noexcept override { return tensors_; }
    std::string layers() const override;
    std::vector<LayerTime> layer_times(Shape shape) const override;
    std::vector<std::uint8_t> kernels() const override;
    std::unique_ptr<Session> open_session(SessionRequest const& request) const override;

    Cuda const& cuda() const noexcept { return cuda_; }
    std::int32_t device() const noexcept { return device_; }
    std::vector<Profile> const& profiles() const noexcept { return profiles_; }
    nvinfer1::ICudaEngine& vendor() const noexcept { return *engine_; }
    /// What the library says of runtime and engine. A context that it refuses is among that.
    Diagnostics& recorder() const noexcept { return recorder_; }

    /// The device can never be used again: nothing of the library's on it is destroyed any more.
    void lose() const noexcept { lost_ = true; }
    bool is_lost() const noexcept { return lost_; }

    /// Held by whoever makes, captures, compares or destroys contexts: a wait for the whole device,
    /// which TensorRT may do in each, ends all captures there, and measuring wants the device
    /// alone.
    std::recursive_mutex& contexts() const noexcept { return contexts_; }

#ifdef DUOVEC_RTX
    /// Where all sessions' contexts find kernels and leave new ones; null when there is none.
    nvinfer1::IRuntimeCache const* kernel_cache() const noexcept { return kernel_cache_.get(); }
#endif

 private:
#ifdef DUOVEC_RTX
    void check_header(std::span<std::uint8_t const> plan);
    void open_kernel_cache(std::span<std::uint8_t const> kernels);
#endif
    void deserialize(std::span<std::uint8_t const> plan);

    std::shared_ptr<Library const> library_;
    Cuda cuda_;
    std::int32_t device_;
    std::vector<Profile> profiles_;
    // Before what it is set on: it must live longer.
    mutable Diagnostics recorder_{Hearing::kRecorder};
    std::unique_ptr<nvinfer1::IRuntime> runtime_;
    std::unique_ptr<nvinfer1::ICudaEngine> engine_;
#ifdef DUOVEC_RTX
    std::unique_ptr<nvinfer1::IRuntimeCache> kernel_cache_;
#endif
    TensorTypes tensors_;
    mutable std::atomic<bool> lost_ = false;
    mutable std::recursive_mutex contexts_;
};

}  // namespace duovec::DUOVEC_FLAVOUR
