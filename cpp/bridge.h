// The only file that cxx sees: the handles and functions of src/engine/tensorrt/ffi.rs.
//
// Thread safety: a Library and an Engine may be used from all threads, a Session from the thread
// that opened it; a Plan is read-only. Ownership: Rust owns the handles through the pointers it is
// given. Preconditions: what is passed in lives as long as the call. Every function that can throw
// is `Result` on the Rust side, and its message starts with the error's kind and a colon.

#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "error.h"
#include "rust/cxx.h"

namespace rust::behavior {

/// How cxx turns what is thrown into an error of Rust; nothing passes it.
template <typename Try, typename Fail>
static void trycatch(Try&& body, Fail&& fail) noexcept try {
    body();
} catch (duovec::Error const& error) {
    fail(std::string(duovec::name_of(error.kind())) + ":" + error.what());
} catch (std::bad_alloc const&) {
    fail("out_of_memory:the host has no memory left");
} catch (std::exception const& error) {
    fail(std::string("internal:") + error.what());
} catch (...) {
    fail("internal:an exception without a message");
}

}  // namespace rust::behavior

namespace duovec {
class Backend;
class Engine;
class Plan;
class Session;
}  // namespace duovec

namespace duovec::bridge {

// Defined by cxx in ffi.rs.h.
enum class Flavour : std::uint8_t;
struct BuildRequest;
struct BuildReport;
struct EngineRequest;
struct SessionRequest;
struct SessionReport;
struct StagedInputs;
struct Elements;
struct RunTimes;
struct LayerTime;
struct Version;
struct Observer;

class Plan {
 public:
    explicit Plan(std::unique_ptr<duovec::Plan> plan);
    ~Plan();

    rust::Slice<std::uint8_t const> bytes() const;
    BuildReport report() const;

 private:
    std::unique_ptr<duovec::Plan> plan_;
};

/// What one worker runs. Its outputs are handed out as numbers of the plan's own type; a slice of
/// another type is an Error(kInternal).
class Session {
 public:
    Session(std::shared_ptr<duovec::Engine const> engine, std::unique_ptr<duovec::Session> session);
    ~Session();

    StagedInputs stage(std::int32_t rows, std::int32_t length);
    RunTimes run(bool urgent);
    rust::Slice<float const> dense_f32() const;
    rust::Slice<std::uint16_t const> dense_f16() const;
    rust::Slice<float const> token_weights_f32() const;
    rust::Slice<std::uint16_t const> token_weights_f16() const;
    SessionReport report() const;
    /// Of its engine.
    rust::Vec<std::uint8_t> kernels() const;

 private:
    // Before the session: it must live longer.
    std::shared_ptr<duovec::Engine const> engine_;
    std::unique_ptr<duovec::Session> session_;
};

class Engine {
 public:
    explicit Engine(std::shared_ptr<duovec::Engine const> engine);

    Elements elements() const;
    rust::String layers() const;
    rust::Vec<LayerTime> layer_times(std::int32_t rows, std::int32_t length) const;
    std::unique_ptr<Session> open_session(SessionRequest const& request) const;

 private:
    std::shared_ptr<duovec::Engine const> engine_;
};

class Library {
 public:
    explicit Library(std::shared_ptr<Backend const> backend);

    Version version() const;
    std::unique_ptr<Plan> build_plan(BuildRequest const& request, Observer const& observer) const;
    std::shared_ptr<Engine> load(EngineRequest const& request, rust::Slice<std::uint8_t const> plan,
                                 rust::Slice<std::uint8_t const> kernels) const;

 private:
    std::shared_ptr<Backend const> backend_;
};

std::shared_ptr<Library> open_library(Flavour flavour, rust::Str directory);

}  // namespace duovec::bridge
