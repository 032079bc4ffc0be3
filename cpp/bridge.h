// What cxx sees beside backend.h, whose classes are Rust's handles: the functions of
// src/engine/tensorrt/ffi.rs, which take and give the plain structs that are defined there.
//
// Thread safety, ownership: as backend.h says; Rust owns the handles through the pointers it is
// given. Preconditions: what is passed in lives as long as the call, and a session's engine as long
// as the session. Every function that can throw is `Result` on the Rust side, and its message
// starts with the error's kind and a colon.

#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "backend.h"
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

namespace duovec::bridge {

// Defined by cxx in ffi.rs.h.
enum class Output : std::uint8_t;
struct BuildRequest;
struct BuildReport;
struct EngineRequest;
struct SessionRequest;
struct SessionReport;
struct StagedInputs;
struct OutputType;
struct RunTimes;
struct RunWishes;
struct LayerTime;
struct Version;
struct Observer;

std::shared_ptr<Backend> open_library(Flavour flavour, rust::Str directory);
Version version_of(Backend const& library);
std::unique_ptr<duovec::Plan> build_plan(Backend const& library, BuildRequest const& request,
                                         Observer const& observer);
std::shared_ptr<duovec::Engine> load(Backend const& library, EngineRequest const& request,
                                     rust::Slice<std::uint8_t const> plan,
                                     rust::Slice<std::uint8_t const> kernels);

rust::Slice<std::uint8_t const> bytes_of(duovec::Plan const& plan);
BuildReport report_of(duovec::Plan const& plan);

rust::Vec<OutputType> outputs_of(duovec::Engine const& engine);
rust::String layers_of(duovec::Engine const& engine);
rust::Vec<LayerTime> layer_times(duovec::Engine const& engine, std::int32_t rows,
                                 std::int32_t length);
rust::Vec<std::uint8_t> kernels_of(duovec::Engine const& engine);
std::unique_ptr<duovec::Session> open_session(duovec::Engine const& engine,
                                              SessionRequest const& request);

StagedInputs stage(duovec::Session& session, std::int32_t rows, std::int32_t length);
RunTimes run(duovec::Session& session, RunWishes wishes);
// What the last run gave, as numbers of the plan's own type; to ask for another one is an
// Error(kInternal).
rust::Slice<std::int32_t const> integers(duovec::Session const& session, Output output);
rust::Slice<float const> floats(duovec::Session const& session, Output output);
rust::Slice<std::uint16_t const> halves(duovec::Session const& session, Output output);
SessionReport how_it_runs(duovec::Session const& session);

}  // namespace duovec::bridge
