// Builds on the stand-in libraries, and sessions on what was built.

#include "builder.h"

#include <fstream>
#include <string>

#include "testing/session_rig.h"

using namespace duovec::testing;
using duovec::BuildRequest;
using duovec::ErrorKind;
using duovec::DUOVEC_FLAVOUR::build_plan;

namespace {

constexpr bool kIsRtx = kFlavour == duovec::Flavour::kTensorRtRtx;

/// A graph as small as the checks allow; `dense` is the end of its line, `rows` those of its table
/// of positions.
std::string graph_text(std::string const& dense = "float32 -1 -1 8", std::string const& more = "",
                       std::string const& rows = "64") {
    return "duovec stand-in graph 1\ninput input_ids int32 -1 -1\ninput positions int32 -1 -1\n"
           "input segments int32 -1 -1\ninput span_weights float32 -1 -1 -1\n"
           "layer constant - words float16 100 8\n"
           "layer gather words,input_ids embedded float16 -1 -1 8\n"
           "layer constant - places float32 " +
           rows + " 8\nlayer cast places narrow float16 " + rows +
           " 8\nlayer gather narrow,positions placed float16 -1 -1 8\n"
           "layer product embedded,placed,segments states float16 -1 -1 8\n"
           "layer product span_weights,states dense " +
           dense + "\nlayer cast states token_weights float32 -1 -1\n" + more +
           "output dense\noutput token_weights\n";
}

/// A file beside the program, removed at its end.
class GraphFile {
 public:
    explicit GraphFile(std::string const& text)
        : path_(standins() + "/graph-" + std::to_string(getpid())) {
        std::ofstream(path_) << text;
    }
    ~GraphFile() { unlink(path_.c_str()); }
    GraphFile(GraphFile const&) = delete;
    GraphFile& operator=(GraphFile const&) = delete;

    std::string const& path() const { return path_; }

 private:
    std::string path_;
};

class Quiet final : public duovec::BuildObserver {
 public:
    explicit Quiet(int steps = 1000) : steps_(steps) {}
    bool progress(std::int32_t, std::string_view) noexcept override { return --steps_ > 0; }

 private:
    int steps_;
};

BuildRequest build_request(GraphFile const& graph) {
    BuildRequest wanted;
    wanted.model_path = graph.path();
    wanted.tensors = request("").tensors;
    wanted.profiles = request("").profiles;
    wanted.length_max = 64;
    wanted.vocabulary_size = 100;
    return wanted;
}

std::unique_ptr<duovec::Plan> build(BuildRequest const& wanted, int steps = 1000) {
    Quiet observer(steps);
    return build_plan(open_library(), wanted, observer);
}

std::string text_of(duovec::Plan const& plan) {
    auto const bytes = plan.bytes();
    return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST(a_plan_that_was_built_runs) {
    GraphFile const graph(graph_text());
    auto const plan = build(build_request(graph));
    CHECK(plan->report().precision == "f16" && plan->report().position_rows == 64);
    CHECK((plan->report().scratch_bytes == std::vector<std::int64_t>{16384, 65536}));
    CHECK(plan->report().warnings.empty());
    std::string const text = text_of(*plan);
    LoadedEngine const engine(open_library(), request(text));
    auto const session = engine.open_session(wanted(kAllGraphs));
    warm_up(*session);
    CHECK(run(*session, kLargest, 3) == run_alone(engine, kLargest, 3));
    CHECK(session->report().captured == 5 && session->report().refused.empty());
}

TEST(the_heads_of_an_attention_are_counted) {
    std::string const attention = "layer softmax states shares float16 -1 12 -1 -1\n";
    GraphFile const graph(graph_text("float32 -1 -1 8", attention));
    CHECK(build(build_request(graph))->report().heads == 12);
}

TEST(arithmetic_is_that_of_the_graph) {
    GraphFile const graph(graph_text());
    std::string const text = text_of(*build(build_request(graph)));
    CHECK(contains(text, "built strongly_typed\n"));
    CHECK(!contains(text, "built tf32\n"));
    CHECK(!contains(text, "built aux_streams\n"));
}

TEST(products_of_8_bits_are_fp8_whatever_attention_computes_in) {
    std::string const rounded =
        "layer quantize states,words states.fp8 float8 -1 -1 8\nlayer dequantize "
        "states.fp8,words states.rounded float16 -1 -1 8\nlayer product states.rounded,words "
        "narrow float16 -1 -1 8\n";
    GraphFile const graph(graph_text("float32 -1 -1 8", rounded));
    CHECK(build(build_request(graph))->report().precision == "fp8");
}

TEST(plans_say_how_they_were_to_be_built) {
    GraphFile const graph(graph_text());
    BuildRequest wanted = build_request(graph);
    if (kIsRtx) {
        wanted.compute_capabilities = {86, 120};
        std::string const text = text_of(*build(wanted));
        CHECK(contains(text, "built for_86\nbuilt for_120\n"));
        CHECK(contains(text, "user_allocation\n"));
        return;
    }
    std::string const plain = text_of(*build(wanted));
    CHECK(!contains(plain, "host_code\n") && contains(plain, "built hardware_compatibility_0\n"));
    wanted.version_compatible = true;
    wanted.hardware_compatible = true;
    std::string const text = text_of(*build(wanted));
    CHECK(contains(text, "host_code\n") && contains(text, "built hardware_compatibility_1\n"));
}

TEST(a_timing_cache_is_used_again_and_a_foreign_one_is_not) {
    GraphFile const graph(graph_text());
    BuildRequest wanted = build_request(graph);
    std::vector<std::uint8_t> const made = build(wanted)->report().timing_cache;
    CHECK(made.empty() == kIsRtx);
    std::vector<std::uint8_t> used = made;
    used.push_back('x');
    wanted.timing_cache = used;
    CHECK(build(wanted)->report().timing_cache == (kIsRtx ? made : used));
    std::vector<std::uint8_t> const foreign = {'o', 't', 'h', 'e', 'r'};
    wanted.timing_cache = foreign;
    CHECK(build(wanted)->report().timing_cache == made);
}

TEST(layers_without_outputs_are_passed_over) {
    GraphFile const graph(graph_text("float32 -1 -1 8", "layer assertion dense -\n"));
    CHECK(!build(build_request(graph))->bytes().empty());
}

TEST(a_graph_that_no_session_could_load_is_refused) {
    auto const refused = [](std::string const& text, char const* words) {
        GraphFile const graph(text);
        auto const error = failure([&] { build(build_request(graph)); });
        return failed_with(error, ErrorKind::kModel, words);
    };
    CHECK(refused(graph_text("float32 -1 8"),
                  "'dense' has the shape [?, 8], it must be [rows, spans, 8]"));
    CHECK(refused(graph_text("bfloat16 -1 -1 8"), "'dense' is bfloat16, it must be float32"));
    CHECK(refused("no graph", "Failed to parse the ONNX model"));
    CHECK(refused(graph_text() + "input fifth int32 -1 -1\n", "has 5 inputs"));
    CHECK(refused(graph_text("float32 -1 -1 8", "", "63"),
                  "is longer than the graph's table of 63 positions"));
}

TEST(a_build_that_fails_or_is_stopped_says_why) {
    GraphFile const graph(graph_text());
    {
        ScopedFaults const faults("build_fails");
        auto const error = failure([&] { build(build_request(graph)); });
        CHECK(failed_with(error, ErrorKind::kModel, "no implementation was found"));
    }
    for (int const steps : {1, 2, 4}) {
        auto const error = failure([&] { build(build_request(graph), steps); });
        CHECK(failed_with(error, ErrorKind::kCancelled, "cancelled"));
    }
    if (!kIsRtx) {
        ScopedFaults const faults("no_device");
        auto const error = failure([&] { build(build_request(graph)); });
        CHECK(failed_with(error, ErrorKind::kDevice, "gives no builder"));
    }
}

TEST(layers_are_timed_on_empty_rows) {
    PlanText plan;
    plan.head += "layer words\nlayer dense\n";
    auto const times = load(plan)->layer_times({4, 32});
    CHECK(times.size() == 2 && times[0].name == "words" && times[1].microseconds > 0);
}
