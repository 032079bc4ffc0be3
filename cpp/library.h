// The vendor's libraries, opened at run time: version gate, and a check of every pointer they give.
// It is the flavour's backend, its only way out of its namespace.
//
// Thread safety: immutable once opened. Ownership: what the create functions return belongs to the
// caller and must be destroyed before nothing else than the objects made from it; the libraries
// themselves are never closed, because their threads and destructors outlive any owner.
// Preconditions: loggers outlive everything that is created with them.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "flavour.h"

namespace duovec::DUOVEC_FLAVOUR {

/// For createNetworkV2: precision is the graph's own. TensorRT 11 knows nothing else and has
/// deprecated the name; in 10 it is another bit, and without it a graph would run in f32.
std::uint32_t strongly_typed();

class Library final : public Backend, public std::enable_shared_from_this<Library> {
 public:
    /// Opens the runtime library in `directory`, or where the loader looks when it is empty.
    /// Throws Error(kLibrary) when it is missing, or when its version is none that the headers are
    /// right for (kOldestMinor and kNewestMinor of flavour.h).
    explicit Library(std::string directory);

    Version version() const noexcept override { return version_; }
    std::unique_ptr<Plan> build(BuildRequest const& request,
                                BuildObserver& observer) const override;
    std::unique_ptr<Engine> load(EngineRequest const& request) const override;

    /// Throws Error(kDevice) or Error(kLibrary) when the library gives none.
    std::unique_ptr<nvinfer1::IBuilder> create_builder(nvinfer1::ILogger& logger) const;

    /// Ask the CUDA runtime for devices first: without a driver some versions return a bad pointer
    /// (0x228); it is refused here, but not every version is known.
    std::unique_ptr<nvinfer1::IRuntime> create_runtime(nvinfer1::ILogger& logger) const;

    /// Opens the parser's library, which only builds need.
    std::unique_ptr<nvonnxparser::IParser> create_parser(nvinfer1::INetworkDefinition& network,
                                                         nvinfer1::ILogger& logger) const;

 private:
    std::string directory_;
    void* handle_;
    Version version_;
};

}  // namespace duovec::DUOVEC_FLAVOUR
