// What the tests on the stand-ins share: plans, packages of ids, faults.
//
// Thread safety: each thread has its own sessions; faults are the process's. Ownership: none.
// Preconditions: the variable DUOVEC_TEST_STANDIN_DIR names the folder of the stand-in libraries.

#pragma once

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
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

/// The folder of the stand-in libraries.
inline std::string standins() {
    char const* const named = std::getenv("DUOVEC_TEST_STANDIN_DIR");
    return named == nullptr ? "run scripts/test_tensorrt.sh" : named;
}

inline std::shared_ptr<Library const> open_library() {
    return std::make_shared<Library const>(standins());
}

/// A function that the stand-in offers to tests.
template <typename Function>
Function* standin(char const* name) {
    static void* const library = dlopen((standins() + "/libcudart.so.13").c_str(), RTLD_NOW);
    auto* const function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr) {
        throw std::runtime_error(std::string("the stand-in has no ") + name);
    }
    return function;
}

inline void fault(std::string const& spec) {
    standin<void(char const*)>("duovec_standin_fault")(spec.c_str());
}

inline long count(char const* what) {
    return standin<long(char const*)>("duovec_standin_count")(what);
}

inline long live() { return standin<long()>("duovec_standin_live")(); }

/// Sets faults, and clears them at its end.
class ScopedFaults {
 public:
    explicit ScopedFaults(std::string const& spec) { fault(spec); }
    ~ScopedFaults() { fault(""); }
    ScopedFaults(ScopedFaults const&) = delete;
    ScopedFaults& operator=(ScopedFaults const&) = delete;
};

struct PlanText {
    std::string flavour = kFlavour == duovec::Flavour::kTensorRt ? "tensorrt" : "tensorrt-rtx";
    /// Lines in front of all others.
    std::string head = kFlavour == duovec::Flavour::kTensorRt ? "" : "user_allocation\n";
    std::string ids = "int32";
    std::string outputs = "float32";
    std::string dense = "dense";
    std::string weights = "output token_weights float32 -1 -1\n";
    std::string latency = "profile 1 1 1 8 8 32\n";
    /// Bytes of the two profiles.
    std::string scratch = "scratch 4096\nscratch 65536\n";

    std::string text() const {
        return "duovec stand-in plan 1\nflavour " + flavour + "\n" + head + "input input_ids " +
               ids + " -1 -1\ninput positions int32 -1 -1\ninput segments int32 -1 -1\n" +
               "input span_weights float32 -1 -1 -1\noutput " + dense + " " + outputs + " -1 -1 " +
               std::to_string(kHidden) + "\n" + weights + latency + "profile 1 1 8 32 16 64\n" +
               scratch;
    }
};

inline EngineRequest request(std::string const& plan) {
    EngineRequest request;
    request.plan = {reinterpret_cast<std::uint8_t const*>(plan.data()), plan.size()};
    request.profiles = {{"latency", {1, 1, 8}, {1, 8, 32}},
                        {"throughput", {1, 8, 16}, {1, 32, 64}}};
    request.tensors[kDense] = TensorType{Element::kFloat32, kHidden};
    request.tensors[kTokenWeights] = TensorType{};
    request.cuda_file = standins() + "/libcudart.so.13";
    return request;
}

inline std::unique_ptr<LoadedEngine> load(PlanText const& plan = {}) {
    std::string const text = plan.text();
    return std::make_unique<LoadedEngine>(open_library(), request(text));
}

/// On a busy machine any run may look long: only tests of that let the clock decide.
constexpr std::chrono::nanoseconds kLongRun = std::chrono::milliseconds(2);
constexpr std::chrono::nanoseconds kNoRunIsLong = std::chrono::hours(1);

inline SessionRequest wanted(std::int64_t captured_tokens_max,
                             std::chrono::nanoseconds long_run = kNoRunIsLong) {
    return {kShapes, captured_tokens_max, long_run};
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

/// A text's ids: 1 to `room` of them, other ones for each seed.
inline std::vector<std::int32_t> ids_of(std::int32_t seed, std::int32_t room) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(1 + seed % room));
    for (std::size_t at = 0; at < ids.size(); ++at) {
        ids[at] = seed * 31 + static_cast<std::int32_t>(at) * 7 + 4;
    }
    return ids;
}

/// The ids of each text of each row.
using Texts = std::vector<std::vector<std::vector<std::int32_t>>>;

/// Rows with as many texts as they have spans or tokens for.
inline Texts texts_of(Shape shape, std::int32_t seed) {
    Texts rows(static_cast<std::size_t>(shape.rows));
    for (std::int32_t row = 0; row < shape.rows; ++row) {
        auto& texts = rows[static_cast<std::size_t>(row)];
        std::int32_t room = shape.length;
        while (room > 0 && std::ssize(texts) < spans_of(shape.length)) {
            auto const number = static_cast<std::int32_t>(texts.size());
            texts.push_back(ids_of(seed + row + 5 * number, room));
            room -= static_cast<std::int32_t>(texts.back().size());
        }
    }
    return rows;
}

/// One span for each text: all its tokens count, or with `cls` the first alone.
inline void fill(Session& session, Shape shape, Texts const& rows, bool cls = false) {
    duovec::StagedInputs const staged = session.stage(shape);
    std::ranges::fill(staged.input_ids, 1);
    std::ranges::fill(staged.positions, 0);
    std::ranges::fill(staged.segments, -1);
    std::ranges::fill(staged.span_weights, 0.0F);
    auto const length = static_cast<std::size_t>(shape.length);
    auto const spans = static_cast<std::size_t>(spans_of(shape.length));
    for (std::size_t row = 0; row < rows.size(); ++row) {
        std::size_t place = row * length;
        for (std::size_t text = 0; text < rows[row].size(); ++text) {
            auto const& ids = rows[row][text];
            std::size_t const counts = (row * spans + text) * length + place - row * length;
            for (std::size_t at = 0; at < ids.size(); ++at, ++place) {
                staged.input_ids[place] = ids[at];
                staged.positions[place] = static_cast<std::int32_t>(at);
                staged.segments[place] = static_cast<std::int32_t>(text);
                float const part = 1.0F / static_cast<float>(ids.size());
                staged.span_weights[counts + at] = !cls ? part : at == 0 ? 1.0F : 0.0F;
            }
        }
    }
}

inline void fill(Session& session, Shape shape, std::int32_t seed) {
    fill(session, shape, texts_of(shape, seed), seed % 2 == 1);
}

/// What is read of a batch: of each text its vector, then the weights of its tokens.
template <typename Number = float>
std::vector<Number> read(Session const& session, Shape shape, Texts const& rows) {
    auto const* const dense = reinterpret_cast<Number const*>(session.output(kDense).bytes.data());
    auto const* const weights =
        reinterpret_cast<Number const*>(session.output(kTokenWeights).bytes.data());
    auto const spans = static_cast<std::size_t>(spans_of(shape.length));
    std::vector<Number> found;
    for (std::size_t row = 0; row < rows.size(); ++row) {
        Number const* token = weights + row * static_cast<std::size_t>(shape.length);
        for (std::size_t text = 0; text < rows[row].size(); ++text) {
            Number const* const vector = dense + (row * spans + text) * kHidden;
            found.insert(found.end(), vector, vector + kHidden);
            Number const* const end = token + rows[row][text].size();
            found.insert(found.end(), token, end);
            token = end;
        }
    }
    return found;
}

template <typename Number = float>
std::vector<Number> run(Session& session, Shape shape, std::int32_t seed,
                        Urgency urgency = Urgency::kUsual) {
    fill(session, shape, seed);
    static_cast<void>(session.run(urgency));
    return read<Number>(session, shape, texts_of(shape, seed));
}

/// The same texts, each alone in a batch of one row of its shape's length.
template <typename Number = float>
std::vector<Number> run_alone(LoadedEngine const& engine, Shape shape, std::int32_t seed) {
    Shape const single{1, shape.length};
    auto const session = engine.open_session({{single}, 0});
    std::vector<Number> found;
    for (auto const& row : texts_of(shape, seed)) {
        for (auto const& text : row) {
            fill(*session, single, {{text}});
            static_cast<void>(session->run());
            std::ranges::copy(read<Number>(*session, single, {{text}}), std::back_inserter(found));
        }
    }
    return found;
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
