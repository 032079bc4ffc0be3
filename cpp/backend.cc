#include "backend.h"

#include "builder.h"
#include "diagnostics.h"
#include "engine.h"
#include "library.h"

namespace duovec::DUOVEC_FLAVOUR {
namespace {

/// The flavour's only way out of its namespace.
class FlavourBackend final : public Backend {
 public:
    explicit FlavourBackend(std::string const& directory)
        : library_(std::make_shared<Library const>(directory)) {}

    Version version() const noexcept override { return library_->version(); }

    std::unique_ptr<Plan> build(BuildRequest const& request,
                                BuildObserver& observer) const override {
        return build_plan(library_, request, observer);
    }

    std::unique_ptr<Engine> load(EngineRequest const& request) const override {
        return std::make_unique<LoadedEngine>(library_, request);
    }

 private:
    std::shared_ptr<Library const> library_;
};

}  // namespace

std::shared_ptr<Backend const> open_backend(std::string const& directory, LogSink sink) {
    set_log_sink(sink);
    return std::make_shared<FlavourBackend const>(directory);
}

}  // namespace duovec::DUOVEC_FLAVOUR
