// What the tests of engine and session on the stand-ins share: plans, packages of ids, faults.
//
// Thread safety: each thread has its own sessions; faults are the process's. Ownership: none.
// Preconditions: DUOVEC_TEST_STANDINS names the folder of the stand-in libraries. Include it in
// one file of a program.

#pragma once

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>

#include "engine.h"
#include "error.h"
#include "library.h"
#include "testing/check.h"

namespace duovec::testing {

using DUOVEC_FLAVOUR::kFlavour;
using DUOVEC_FLAVOUR::Library;
using DUOVEC_FLAVOUR::LoadedEngine;

constexpr std::int32_t kHidden = 8;
constexpr Shape kLargest{16, 64};
constexpr std::int64_t kAllGraphs = 1 << 20;

inline std::vector<Shape> const kShapes = {{1, 8}, {2, 8}, {4, 32}, {8, 16}, {16, 64}};

/// A function that the stand-in offers to tests.
template <typename Function>
Function* standin(char const* name) {
    static void* const library =
        dlopen((std::string(DUOVEC_TEST_STANDINS) + "/libcudart.so.13").c_str(), RTLD_NOW);
    auto* const function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr) {
        throw std::runtime_error(std::string("the stand-in has no ") + name);
    }
    return function;
}

inline void fault(char const* spec) { standin<void(char const*)>("duovec_standin_fault")(spec); }

inline long count(char const* what) {
    return standin<long(char const*)>("duovec_standin_count")(what);
}

inline long live() { return standin<long()>("duovec_standin_live")(); }

/// Sets faults, and clears them at its end.
class ScopedFaults {
 public:
    explicit ScopedFaults(char const* spec) { fault(spec); }
    ~ScopedFaults() { fault(""); }
    ScopedFaults(ScopedFaults const&) = delete;
    ScopedFaults& operator=(ScopedFaults const&) = delete;
};

struct PlanText {
    std::string flavour = kFlavour == duovec::Flavour::kTensorRt ? "tensorrt" : "tensorrt-rtx";
    /// Lines in front of all others.
    std::string head = kFlavour == duovec::Flavour::kTensorRt ? "" : "user_allocation\n";
    std::string inputs = "int32";
    std::string outputs = "float32";
    std::string dense = "dense";
    std::string weights = "output token_weights float32 0\n";
    std::string latency = "profile 1 1 1 8 8 32\n";
    /// Bytes of the two profiles.
    std::string scratch = "scratch 4096\nscratch 65536\n";

    std::string text() const {
        return "duovec stand-in plan 1\nflavour " + flavour + "\n" + head + "input input_ids " +
               inputs + "\ninput attention_mask " + inputs + "\noutput " + dense + " " + outputs +
               " " + std::to_string(kHidden) + "\n" + weights + latency +
               "profile 1 1 8 32 16 64\n" + scratch;
    }
};

inline EngineRequest request(std::string const& plan) {
    EngineRequest request;
    request.plan = {reinterpret_cast<std::uint8_t const*>(plan.data()), plan.size()};
    request.profiles = {{"latency", {1, 1, 8}, {1, 8, 32}},
                        {"throughput", {1, 8, 16}, {1, 32, 64}}};
    request.input_ids = "input_ids";
    request.attention_mask = "attention_mask";
    request.dense = "dense";
    request.token_weights = "token_weights";
    request.hidden_size = kHidden;
    request.cuda_file = std::string(DUOVEC_TEST_STANDINS) + "/libcudart.so.13";
    return request;
}

inline std::unique_ptr<LoadedEngine> load(PlanText const& plan = {}) {
    auto library = std::make_shared<Library const>(DUOVEC_TEST_STANDINS);
    std::string const text = plan.text();
    return std::make_unique<LoadedEngine>(std::move(library), request(text));
}

/// On a busy machine any run may look long: only tests of that let the clock decide.
constexpr std::chrono::nanoseconds kLongRun = std::chrono::milliseconds(2);
constexpr std::chrono::nanoseconds kNoRunIsLong = std::chrono::hours(1);

inline SessionRequest wanted(std::int64_t captured_tokens_max,
                             std::chrono::nanoseconds long_run = kNoRunIsLong) {
    return {kShapes, captured_tokens_max, long_run, 0};
}

/// The error of `body`, or nothing.
inline std::optional<Error> failure(std::function<void()> const& body) {
    try {
        body();
    } catch (Error const& error) {
        return error;
    }
    return std::nullopt;
}

inline bool failed_with(std::optional<Error> const& error, ErrorKind kind, char const* part) {
    if (!error) {
        std::fprintf(stderr, "nothing failed where '%s' was due\n", part);
        return false;
    }
    bool const right = error->kind() == kind && contains(error->what(), part);
    if (!right) {
        std::fprintf(stderr, "%s: %s\n", duovec::name_of(error->kind()), error->what());
    }
    return right;
}

/// A row's ids: 1 to `length` of them, other ones for each seed.
inline std::vector<std::int32_t> ids_of(std::int32_t seed, std::int32_t length) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(1 + seed % length));
    for (std::size_t at = 0; at < ids.size(); ++at) {
        ids[at] = seed * 31 + static_cast<std::int32_t>(at) * 7 + 4;
    }
    return ids;
}

template <typename Number>
void fill(Session& session, Shape shape, std::int32_t seed) {
    duovec::StagedInputs const staged = session.stage(shape);
    auto* const ids = reinterpret_cast<Number*>(staged.input_ids.data());
    auto* const mask = reinterpret_cast<Number*>(staged.attention_mask.data());
    std::fill_n(ids, duovec::tokens_of(shape), Number{1});
    std::fill_n(mask, duovec::tokens_of(shape), Number{0});
    for (std::int32_t row = 0; row < shape.rows; ++row) {
        std::vector<std::int32_t> const row_ids = ids_of(seed + row, shape.length);
        std::copy(row_ids.begin(), row_ids.end(), ids + row * shape.length);
        std::fill_n(mask + row * shape.length, row_ids.size(), Number{1});
    }
}

/// What is read of a batch: its dense rows, then the weights of its real tokens.
template <typename Number = float>
std::vector<Number> rows(Session const& session, Shape shape, std::int32_t seed) {
    duovec::RunOutputs const outputs = session.outputs();
    auto const* const dense = reinterpret_cast<Number const*>(outputs.dense.data());
    auto const* const weights = reinterpret_cast<Number const*>(outputs.token_weights.data());
    std::vector<Number> read;
    for (std::int32_t row = 0; row < shape.rows; ++row) {
        auto const tokens = ids_of(seed + row, shape.length).size();
        read.insert(read.end(), dense + row * kHidden, dense + (row + 1) * kHidden);
        auto const* const first = weights + row * shape.length;
        read.insert(read.end(), first, first + tokens);
    }
    return read;
}

inline std::vector<float> run(Session& session, Shape shape, std::int32_t seed) {
    fill<std::int32_t>(session, shape, seed);
    static_cast<void>(session.run());
    return rows(session, shape, seed);
}

/// The same texts, each alone in a batch of one row of its shape's length.
inline std::vector<float> run_alone(LoadedEngine const& engine, Shape shape, std::int32_t seed) {
    Shape const single{1, shape.length};
    auto const session = engine.open_session({{single}, 0});
    std::vector<float> read;
    for (std::int32_t row = 0; row < shape.rows; ++row) {
        std::vector<float> const one = run(*session, single, seed + row);
        read.insert(read.end(), one.begin(), one.end());
    }
    return read;
}

inline void warm_up(Session& session) {
    for (Shape const shape : kShapes) {
        run(session, shape, 1);
    }
}

/// Runs `body` in a process of its own, which may lose its device; whether its checks hold.
inline bool holds_in_child(std::function<void()> const& body) {
    int const before = failures();
    pid_t const child = fork();
    if (child == 0) {
        body();
        _exit(failures() == before ? 0 : 1);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/// A refusal of the plan that `change` makes.
inline std::optional<Error> refusal(std::function<void(PlanText&)> const& change) {
    PlanText plan;
    change(plan);
    return failure([&] { load(plan); });
}

}  // namespace duovec::testing
