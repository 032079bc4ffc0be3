// Engine and session on the stand-in libraries: every branch that a GPU could take us to.

#include "session.h"

#include <thread>

#include "testing/session_rig.h"

using namespace duovec::testing;
using duovec::Copied;
using duovec::Element;
using duovec::EngineRequest;
using duovec::ErrorKind;
using duovec::Shape;
using duovec::TensorType;
using duovec::Urgency;
using duovec::Waits;

TEST(texts_beside_each_other_give_what_each_gives_alone) {
    auto const engine = load();
    for (std::int64_t const captured_tokens_max : {std::int64_t{0}, kAllGraphs}) {
        auto const session = engine->open_session(wanted(captured_tokens_max));
        for (std::int32_t seed = 0; seed < 3; ++seed) {
            for (Shape const shape : kShapes) {
                CHECK(run(*session, shape, seed) == run_alone(*engine, shape, seed));
            }
        }
    }
}

TEST(a_graph_gives_what_a_plain_enqueue_gives) {
    auto const engine = load();
    auto const captured = engine->open_session(wanted(kAllGraphs));
    auto const plain = engine->open_session(wanted(0));
    for (std::int32_t seed = 5; seed < 25; ++seed) {
        for (Shape const shape : kShapes) {
            CHECK(run(*captured, shape, seed) == run(*plain, shape, seed));
        }
    }
    CHECK(captured->report().captured == 5 && captured->report().plain == 0);
    CHECK(plain->report().captured == 0 && plain->report().plain == 5);
}

TEST(small_shapes_are_captured_and_large_ones_are_not) {
    auto const engine = load();
    auto const session = engine->open_session(wanted(128));
    warm_up(*session);
    CHECK(session->report().captured == 4 && session->report().plain == 1);
    CHECK(session->report().refused.empty());
}

TEST(a_long_run_is_captured_when_its_graph_saves_time) {
    auto const engine = load();
    auto const captured_with = [&](char const* spec) {
        ScopedFaults const faults(spec);
        auto const session = engine->open_session(wanted(kAllGraphs, kLongRun));
        CHECK(run(*session, kLargest, 7) == run_alone(*engine, kLargest, 7));
        CHECK(session->report().refused.empty());
        return session->report().captured;
    };
    // Differences that a late wake-up on a busy machine does not make up for.
    CHECK(captured_with("run_us=2000,launch_us=80000") == 0);
    CHECK(captured_with("run_us=2000,enqueue_us=80000") == 1);
}

TEST(nothing_is_allocated_or_captured_after_warm_up) {
    auto const engine = load();
    auto const session = engine->open_session(wanted(128));
    warm_up(*session);
    std::vector<char const*> const still = {"malloc", "host_alloc", "capture"};
    std::vector<long> before;
    std::ranges::transform(still, std::back_inserter(before), count);
    long const launched = count("graph_launch");
    long const enqueued = count("enqueue");
    long const copied = count("copy");
    long const alive = live();
    for (int round = 0; round < 10; ++round) {
        warm_up(*session);
    }
    for (std::size_t at = 0; at < still.size(); ++at) {
        CHECK(count(still[at]) == before[at]);
    }
    CHECK(live() == alive);
    CHECK(count("graph_launch") - launched == 40);
    CHECK(count("enqueue") - enqueued == 10);
    CHECK(count("copy") - copied == 100);
}

TEST(the_host_allocates_nothing_in_a_run_after_warm_up) {
    auto const engine = load();
    auto const session = engine->open_session(wanted(128));
    warm_up(*session);
    for (Shape const shape : kShapes) {
        fill(*session, shape, 3);
        long const before = allocations;
        session->stage(shape);
        static_cast<void>(session->run());
        static_cast<void>(session->output(duovec::kDense));
        CHECK(allocations == before);
    }
    CHECK(allocations > 0);
}

TEST(stages_are_timed) {
    ScopedFaults const slow("run_us=3000");
    auto const engine = load();
    auto const session = engine->open_session(wanted(kAllGraphs, kLongRun));
    for (int round = 0; round < 2; ++round) {
        fill(*session, kLargest, round);
        duovec::RunTimes const times = session->run();
        CHECK(times.compute >= 2'900'000);
        CHECK(times.copy_in >= 0 && times.copy_out >= 0);
    }
}

TEST(who_waits_for_a_long_run_sleeps_and_for_a_short_one_does_not) {
    auto const engine = load();
    for (std::int64_t const captured_tokens_max : {std::int64_t{0}, kAllGraphs}) {
        auto const session = engine->open_session(wanted(captured_tokens_max, kLongRun));
        auto const waits = [&](char const* what) {
            long const before = count(what);
            run(*session, {2, 8}, 4);
            return count(what) - before;
        };
        {
            ScopedFaults const faults("run_us=5000");
            run(*session, {2, 8}, 4);
            CHECK(waits("spin") == 0);
            CHECK(waits("sleep") == 1);
        }
        // The shortest run of a shape counts; on a busy machine some of these are long.
        for (int round = 0; round < 100; ++round) {
            run(*session, {2, 8}, 4);
        }
        CHECK(waits("spin") == 1);
        CHECK(waits("sleep") == 0);
        // Where other threads need the core.
        long const spun = count("spin");
        session->run(Urgency::kUsual, Waits::kAsleep);
        CHECK(count("spin") == spun);
    }
}

TEST(one_of_sixteen_short_runs_is_timed) {
    auto const engine = load();
    auto const session = engine->open_session(wanted(kAllGraphs));
    long const before = count("event");
    int timed = 0;
    for (int round = 0; round < 33; ++round) {
        fill(*session, {2, 8}, round);
        timed += session->run().compute > 0 ? 1 : 0;
    }
    CHECK(timed == 3);
    CHECK(count("event") - before == 3 * 4);
}

TEST(urgent_runs_are_on_a_stream_of_high_priority) {
    auto const engine = load();
    auto const session = engine->open_session(wanted(128));
    warm_up(*session);
    CHECK(count("urgent") == 0);
    for (Shape const shape : kShapes) {
        for (auto const urgency : {Urgency::kUrgent, Urgency::kUsual, Urgency::kUrgent}) {
            CHECK(run(*session, shape, 3, urgency) == run_alone(*engine, shape, 3));
        }
    }
    CHECK(count("urgent") == 2 * std::ssize(kShapes));
}

TEST(sessions_of_many_threads_do_not_touch_each_other) {
    auto const engine = load();
    auto const work = [&](std::int32_t first) {
        auto const session = engine->open_session(wanted(128));
        for (std::int32_t seed = first; seed < first + 6; ++seed) {
            for (Shape const shape : kShapes) {
                CHECK(run(*session, shape, seed) == run_alone(*engine, shape, seed));
            }
        }
    };
    std::jthread const others[] = {std::jthread(work, 100), std::jthread(work, 200)};
    work(0);
}

TEST(sessions_run_on_the_device_of_their_engine) {
    std::string const text = PlanText{}.text();
    EngineRequest second = request(text);
    second.device = 1;
    LoadedEngine const one(open_library(), second);
    LoadedEngine const zero(open_library(), request(text));
    // The thread's current device is now another than that of the first engine.
    auto const session = one.open_session(wanted(128));
    CHECK(run(*session, kLargest, 3) == run_alone(one, kLargest, 3));
}

TEST(half_precision_outputs_are_read_from_the_plan) {
    PlanText half;
    half.outputs = "float16";
    half.weights = "output token_weights float16 -1 -1\n";
    auto const engine = load(half);
    CHECK(engine->tensors()[duovec::kDense]->element == Element::kFloat16);
    CHECK(engine->tensors()[duovec::kTokenWeights]->element == Element::kFloat16);
    auto const session = engine->open_session(wanted(128));
    Shape const shape{4, 32};
    CHECK(run<std::uint16_t>(*session, shape, 9) == run_alone<std::uint16_t>(*engine, shape, 9));
}

TEST(a_model_without_lexical_weights_gives_none) {
    PlanText plan;
    plan.weights = "";
    std::string const text = plan.text();
    EngineRequest dense_only = request(text);
    dense_only.tensors[duovec::kTokenWeights].reset();
    LoadedEngine const engine(open_library(), dense_only);
    auto const session = engine.open_session(wanted(128));
    fill(*session, {2, 8}, 3);
    static_cast<void>(session->run());
    CHECK(session->output(duovec::kDense).bytes.size() == 2 * kHidden * sizeof(float));
    CHECK(session->output(duovec::kTokenWeights).bytes.empty());
}

TEST(vectors_of_tokens_are_copied_for_runs_that_want_them_and_words_for_all) {
    PlanText plan;
    plan.weights += "output words int32 -1 -1 2\noutput word_weights float16 -1 -1 2\n";
    plan.weights += "output token_vectors float32 -1 -1 4\n";
    std::string const text = plan.text();
    EngineRequest with_vectors = request(text);
    with_vectors.tensors[duovec::kWords] = TensorType{Element::kInt32, 2};
    with_vectors.tensors[duovec::kWordWeights] = TensorType{Element::kFloat32, 2};
    with_vectors.tensors[duovec::kTokenVectors] = TensorType{Element::kFloat32, 4};
    LoadedEngine const engine(open_library(), with_vectors);
    auto const session = engine.open_session(wanted(kAllGraphs));
    auto const vectors = [&](std::int32_t seed, Copied copied) {
        fill(*session, {4, 32}, seed);
        static_cast<void>(session->run(Urgency::kUsual, Waits::kByTime, copied));
        auto const bytes = session->output(duovec::kTokenVectors).bytes;
        return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    auto const first = vectors(3, Copied::kAll);
    CHECK(first.size() == 4 * 32 * 4 * sizeof(float));
    CHECK(vectors(4, Copied::kButTokenVectors) == first);
    CHECK(read(*session, {4, 32}, texts_of({4, 32}, 4)) == run_alone(*load(), {4, 32}, 4));
    auto const words = session->output(duovec::kWords).bytes;
    CHECK(words.size() == 128 && session->output(duovec::kWordWeights).bytes.size() == 64);
    // Of the first text: the id in front of that of its first token, and of its second.
    auto const* const found = reinterpret_cast<std::int32_t const*>(words.data());
    CHECK(found[0] == 4 * 31 + 4 - 1 && found[1] == found[0] + 7);
    CHECK(vectors(4, Copied::kAll) != first);
}

TEST(any_profile_may_need_the_most_scratch_memory) {
    for (char const* const scratch : {"scratch 65536\nscratch 4096\n", "scratch 0\nscratch 0\n"}) {
        PlanText plan;
        plan.scratch = scratch;
        auto const engine = load(plan);
        for (std::int64_t const captured_tokens_max : {std::int64_t{0}, kAllGraphs}) {
            auto const session = engine->open_session(wanted(captured_tokens_max));
            for (Shape const shape : kShapes) {
                CHECK(run(*session, shape, 3) == run_alone(*engine, shape, 3));
            }
            CHECK(session->report().refused.empty());
        }
    }
}

TEST(profiles_that_no_shape_needs_take_no_memory) {
    // The device's bytes that a session with one shape takes.
    auto const taken = [](char const* scratch, Shape shape) {
        PlanText plan;
        plan.scratch = scratch;
        auto const engine = load(plan);
        std::size_t const before = engine->cuda().free_bytes();
        auto const session = engine->open_session({{shape}, 0});
        CHECK(session->report().contexts == 1);
        CHECK(run(*session, shape, 3) == run_alone(*engine, shape, 3));
        return before - engine->cuda().free_bytes();
    };
    char const* const rising = "scratch 4096\nscratch 70000\n";
    char const* const falling = "scratch 70000\nscratch 4096\n";
    CHECK(taken(falling, {1, 8}) - taken(rising, {1, 8}) == 70000 - 4096);
    CHECK(taken(rising, kLargest) - taken(falling, kLargest) == 70000 - 4096);
}

TEST(a_plan_that_is_not_what_the_manifest_says_is_refused) {
    for (auto const& [words, change] : std::vector<std::pair<char const*, void (*)(PlanText&)>>{
             {"it has no output 'dense'", [](auto& plan) { plan.dense = "pooled"; }},
             {"tensor 'input_ids' has the wrong type", [](auto& plan) { plan.ids = "float32"; }},
             {"tensor 'dense' has the wrong type", [](auto& plan) { plan.outputs = "int32"; }},
             {"it has no output 'token_weights'", [](auto& plan) { plan.weights = ""; }},
             {"tensor 'token_weights' is not [rows, length]",
              [](auto& plan) { plan.weights = "output token_weights float32 -1 9\n"; }},
             {"tensor 'dense' is not [rows, spans, 8]",
              [](auto& plan) { plan.dense = "dense float32 -1 8\noutput other"; }},
             {"its profile latency=1x1:1x8:8x48 is latency=1x1:1x8:8x32",
              [](auto& plan) { plan.latency = "profile 1 1 1 8 8 48\n"; }},
             {"it has 7 tensors, not 6", [](auto& p) { p.weights += "output x int32 -1 8\n"; }}}) {
        CHECK(failed_with(refusal(change), ErrorKind::kModel, words));
    }
}

TEST(a_plan_that_cannot_be_read_is_refused_with_the_librarys_words) {
    auto const other = refusal([](PlanText& plan) { plan.flavour = "tensorrt-for-toasters"; });
    CHECK(failed_with(other, ErrorKind::kModel, "cannot run this plan here"));
    {
        ScopedFaults const faults("unsupported_device");
        CHECK(failed_with(failure([] { load(); }), ErrorKind::kModel, "compute capability"));
    }
    {
        ScopedFaults const faults("deserialize_fails");
        CHECK(failed_with(failure([] { load(); }), ErrorKind::kModel, "cannot run this plan"));
    }
    CHECK(live() == 0);
}

#ifdef DUOVEC_RTX
TEST(kernels_are_compiled_once_for_all_sessions) {
    auto const engine = load();
    long const before = count("compile");
    {
        auto const session = engine->open_session(wanted(kAllGraphs));
        warm_up(*session);
        CHECK(count("compile") - before == 5);
        auto const other = engine->open_session(wanted(kAllGraphs));
        warm_up(*other);
    }
    auto const later = engine->open_session(wanted(kAllGraphs));
    warm_up(*later);
    CHECK(count("compile") - before == 5);
}

TEST(sessions_side_by_side_compile_each_kernel_once) {
    auto const engine = load();
    long const before = count("compile");
    auto const one = engine->open_session(wanted(kAllGraphs));
    auto const other = engine->open_session(wanted(kAllGraphs));
    std::thread beside([&] { warm_up(*one); });
    warm_up(*other);
    beside.join();
    CHECK(count("compile") - before == 5);
}

TEST(kernels_of_an_earlier_process_are_used_and_unfit_ones_are_not) {
    std::string const text = PlanText{}.text();
    auto const library = open_library();
    std::vector<std::uint8_t> kernels;
    auto const compiled = [&](std::vector<std::uint8_t> const& earlier) {
        EngineRequest with_kernels = request(text);
        with_kernels.kernels = earlier;
        LoadedEngine const engine(library, with_kernels);
        auto const session = engine.open_session(wanted(kAllGraphs));
        long const before = count("compile");
        warm_up(*session);
        kernels = engine.kernels();
        return count("compile") - before;
    };
    CHECK(compiled({}) == 5);
    std::vector<std::uint8_t> const whole = kernels;
    CHECK(compiled(whole) == 0 && kernels == whole);
    CHECK(compiled({whole.begin(), whole.end() - 1}) == 5 && kernels == whole);
    CHECK(compiled({'x'}) == 5 && kernels == whole);
}

TEST(plain_runs_have_their_last_kernels_from_the_first_run_on) {
    auto const engine = load();
    auto const session = engine->open_session(wanted(0));
    long const before = count("compile");
    warm_up(*session);
    CHECK(count("compile") - before == 5);
    warm_up(*session);
    CHECK(count("compile") - before == 5);
}

namespace {

std::string warned;

void hear(duovec::Flavour, duovec::Severity severity, std::string_view line) {
    warned += severity == duovec::Severity::kWarning ? line : "";
}

}  // namespace

TEST(a_plan_that_is_not_the_best_for_its_gpu_is_told) {
    duovec::DUOVEC_FLAVOUR::set_log_sink(hear);
    load();
    CHECK(warned.empty());
    ScopedFaults const faults("suboptimal_plan");
    load();
    duovec::DUOVEC_FLAVOUR::set_log_sink(nullptr);
    CHECK(contains(warned, "with reduced performance"));
}
#endif

TEST(memory_that_is_not_there_is_named) {
    auto const engine = load();
    auto const open = [&] { engine->open_session(wanted(kAllGraphs)); };
    for (auto const& [spec, words] : std::vector<std::pair<char const*, char const*>>{
             {"malloc_fails_over=60000", "memory for scratch"},
             {"host_alloc_fails", "pinned memory for inputs"},
             {"stream_fails", "create a stream"},
             {"context_fails", "no execution context: create"},
             {"context_refused", "scripted: not now"}}) {
        ScopedFaults const faults(spec);
        bool const is_short = !contains(spec, "refused");
        ErrorKind const kind = is_short ? ErrorKind::kOutOfMemory : ErrorKind::kInternal;
        CHECK(failed_with(failure(open), kind, words));
    }
    CHECK(!failure(open));
}

TEST(a_failed_run_leaves_the_session_usable) {
    auto const engine = load();
    for (char const* const spec :
         {"enqueue_fails=1", "enqueue_fails_late=1", "launch_fails=1", "copy_fails=1"}) {
        bool const graphs = contains(spec, "launch");
        auto const session = engine->open_session(wanted(graphs ? kAllGraphs : 0));
        warm_up(*session);
        {
            ScopedFaults const faults(spec);
            auto const error = failure([&] { run(*session, kLargest, 4); });
            CHECK(error && error->kind() == ErrorKind::kTransient);
        }
        CHECK(run(*session, kLargest, 4) == run_alone(*engine, kLargest, 4));
    }
}

TEST(what_the_library_says_of_a_failed_run_is_in_the_error) {
    auto const engine = load();
    auto const session = engine->open_session(wanted(0));
    ScopedFaults const faults("enqueue_fails=1");
    auto const error = failure([&] { run(*session, kLargest, 4); });
    CHECK(failed_with(error, ErrorKind::kTransient, "cannot enqueue a batch: enqueueV3: "));
}

TEST(a_graph_that_cannot_be_captured_runs_plainly) {
    auto const engine = load();
    for (auto const& [spec, captured] : std::vector<std::pair<char const*, int>>{
             {"capture_fails", 0},
             {"capture_enqueue_fails", 0},
             {"instantiate_fails", 0},
             // Once only, with the context's change of profile still in the stream, or its work.
             {"enqueue_fails=1,other_us=2000", 1},
             {"enqueue_fails_late=1,run_us=2000", 1}}) {
        auto const session = engine->open_session(wanted(kAllGraphs));
        std::vector<float> plainly;
        {
            ScopedFaults const faults(spec);
            plainly = run(*session, {2, 8}, 7);
        }
        CHECK(plainly == run_alone(*engine, {2, 8}, 7));
        CHECK(run(*session, {2, 8}, 8) == run_alone(*engine, {2, 8}, 8));
        CHECK(session->report().captured == captured);
        CHECK(session->report().refused.empty() == (captured == 1));
        // Others are captured all the same.
        run(*session, {1, 8}, 9);
        CHECK(session->report().captured == captured + 1);
    }
}

// TensorRT may wait for the whole device when it makes or destroys a context, which ends every
// capture there, whoever began it.
TEST(sessions_that_open_and_end_side_by_side_leave_each_others_captures) {
    auto const engine = load();
    ScopedFaults const faults("enqueue_us=500");
    auto const work = [&] {
        for (int round = 0; round < 3; ++round) {
            auto const session = engine->open_session(wanted(kAllGraphs));
            warm_up(*session);
            CHECK(session->report().refused == "");
            CHECK(session->report().captured == std::ssize(kShapes));
        }
    };
    std::jthread const others[] = {std::jthread(work), std::jthread(work)};
    work();
}

TEST(shapes_that_were_not_requested_are_refused) {
    auto const engine = load();
    auto const session = engine->open_session(wanted(0));
    ErrorKind const wrong = ErrorKind::kRequest;
    CHECK(failed_with(failure([&] { static_cast<void>(session->run()); }), wrong, "no shape"));
    CHECK(failed_with(failure([&] { session->stage({3, 8}); }), wrong, "not opened for 3x8"));
    auto const uncovered = failure([&] { engine->open_session({{{17, 8}}, 0}); });
    CHECK(failed_with(uncovered, wrong, "no profile of the plan covers 17x8"));
    CHECK(failed_with(failure([&] { engine->open_session({{}, 0}); }), wrong, "at least one"));
}

TEST(an_error_that_sticks_poisons_the_session_for_ever) {
    for (std::int64_t const captured_tokens_max : {std::int64_t{0}, kAllGraphs}) {
        CHECK(holds_in_child([&] {
            auto const engine = load();
            auto const session = engine->open_session(wanted(captured_tokens_max));
            warm_up(*session);
            fault("sticky=1");
            for (int round = 0; round < 3; ++round) {
                auto const error = failure([&] { run(*session, kLargest, 4); });
                CHECK(failed_with(error, ErrorKind::kPoisoned, "cudaErrorIllegalAddress"));
            }
        }));
    }
}
