// Runs on the host's memory, mapped for the device, in place of copies.

#include <algorithm>
#include <cstdint>

#include "session.h"
#include "testing/session_rig.h"

using namespace duovec::testing;
using duovec::ErrorKind;
using duovec::Session;
using duovec::SessionReport;
using duovec::SessionRequest;
using duovec::Shape;
using duovec::Urgency;

namespace {

constexpr std::int64_t kSmall = 16;
constexpr Shape kSmallest{1, 8};
/// Two of kShapes.
constexpr std::int32_t kSmallShapes = 2;

// Differences that a late wake-up on a busy machine does not make up for.
constexpr char const* kCopiesAreSlow = "other_us=20000";
constexpr char const* kMappedRunsAreSlow = "mapped_us=60000";

SessionRequest small_ones_mapped() {
    SessionRequest request = wanted(128);
    request.mapped_tokens_max = kSmall;
    return request;
}

/// Of a session that ran each shape once, under the faults.
SessionReport warmed_up(Session& session, char const* spec) {
    ScopedFaults const faults(spec);
    warm_up(session);
    return session.report();
}

}  // namespace

TEST(small_shapes_use_mapped_memory_when_that_saves_time) {
    auto const engine = load();
    auto const session = engine->open_session(small_ones_mapped());
    auto const report = warmed_up(*session, kCopiesAreSlow);
    CHECK(report.mapped == kSmallShapes && report.captured == 4 && report.plain == 1);
    CHECK(report.refused.empty());
    long const copied = count("copy");
    for (std::int32_t seed = 0; seed < 5; ++seed) {
        for (Shape const shape : kShapes) {
            for (auto const urgency : {Urgency::kUsual, Urgency::kUrgent}) {
                std::vector<float> const seen = run(*session, shape, seed, urgency);
                auto const alone = engine->open_session({{shape}, 0});
                CHECK(seen == run(*alone, shape, seed));
            }
        }
    }
    // Those of the sessions without graphs, and of the three larger shapes.
    std::int64_t const runs = std::int64_t{5} * std::ssize(kShapes) * 2;
    CHECK(count("copy") - copied == 2 * (runs + 5 * (std::ssize(kShapes) - kSmallShapes) * 2));
}

TEST(small_shapes_are_copied_when_that_is_faster) {
    auto const engine = load();
    long const before = live();
    auto const session = engine->open_session(small_ones_mapped());
    auto const report = warmed_up(*session, kMappedRunsAreSlow);
    CHECK(report.mapped == 0 && report.captured == 4 && report.refused.empty());
    // What was tried and lost is gone: the session holds as much as one that tried nothing.
    long const held = live() - before;
    auto const other = engine->open_session(wanted(128));
    warm_up(*other);
    CHECK(live() - before == 2 * held);
    CHECK(run(*session, kSmallest, 3) == run_alone(*engine, kSmallest, 3));
}

TEST(nothing_is_mapped_unless_it_is_asked_for) {
    auto const engine = load();
    auto const session = engine->open_session(wanted(128));
    long const captures = count("capture");
    CHECK(warmed_up(*session, kCopiesAreSlow).mapped == 0);
    CHECK(count("capture") - captures == 4);
}

TEST(a_device_that_maps_no_memory_copies) {
    auto const engine = load();
    ScopedFaults const faults("mapping_fails,other_us=20000");
    auto const session = engine->open_session(small_ones_mapped());
    warm_up(*session);
    CHECK(session->report().mapped == 0 && session->report().captured == 4);
    CHECK(session->report().refused.empty());
    CHECK(run(*session, kSmallest, 3) == run_alone(*engine, kSmallest, 3));
}

TEST(a_graph_that_fails_on_mapped_memory_runs_with_copies) {
    auto const engine = load();
    // The context's plain run, its capture, and a launch while both are measured.
    for (char const* const spec : {"enqueue_fails=3", "enqueue_fails=4", "launch_fails=1",
                                   "enqueue_fails_late=3,run_us=2000"}) {
        auto const session = engine->open_session(small_ones_mapped());
        std::vector<float> seen;
        {
            ScopedFaults const faults(spec);
            seen = run(*session, kSmallest, 3);
        }
        CHECK(seen == run_alone(*engine, kSmallest, 3));
        CHECK(session->report().mapped == 0 && session->report().captured == 1);
        CHECK(session->report().refused.empty());
        CHECK(run(*session, kSmallest, 5) == run_alone(*engine, kSmallest, 5));
    }
}

TEST(runs_on_mapped_memory_allocate_nothing_and_copy_in_no_time) {
    auto const engine = load();
    auto const session = engine->open_session(small_ones_mapped());
    CHECK(warmed_up(*session, kCopiesAreSlow).mapped == kSmallShapes);
    long const alive = live();
    long const enqueued = count("enqueue");
    long const launched = count("graph_launch");
    constexpr int kRounds = 64;
    ScopedFaults const slow("run_us=3000");
    // A busy machine may hold one up, not each.
    std::int64_t least_copies = 1'000'000;
    for (int round = 0; round < kRounds; ++round) {
        fill(*session, kSmallest, round);
        duovec::RunTimes const times = session->run();
        // Of short runs some are timed.
        CHECK(times.compute == 0 || times.compute >= 2'900'000);
        if (times.compute > 0) {
            least_copies = std::min(least_copies, times.copy_in + times.copy_out);
        }
    }
    CHECK(least_copies < 1'000'000);
    CHECK(live() == alive && count("enqueue") == enqueued);
    CHECK(count("graph_launch") - launched == kRounds);
}

TEST(an_error_that_sticks_poisons_a_session_on_mapped_memory) {
    CHECK(holds_in_child([&] {
        auto const engine = load();
        auto const session = engine->open_session(small_ones_mapped());
        CHECK(warmed_up(*session, kCopiesAreSlow).mapped == kSmallShapes);
        fault("sticky=1");
        for (int round = 0; round < 2; ++round) {
            auto const error = failure([&] { run(*session, kSmallest, 4); });
            CHECK(failed_with(error, ErrorKind::kPoisoned, "cudaErrorIllegalAddress"));
        }
    }));
}

TEST(nothing_is_left_behind) { CHECK(live() == 0); }
