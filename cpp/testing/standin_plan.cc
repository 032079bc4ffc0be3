#include "testing/standin_plan.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <span>
#include <sstream>
#include <stdexcept>

#include "testing/standin.h"
#include "testing/standin_kernel.h"

namespace duovec::standin {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string header(std::string_view flavour) {
    return "duovec stand-in plan 1\nflavour " + std::string(flavour) + "\n";
}

Element element_of(std::string const& name) {
    static constexpr std::pair<std::string_view, Element> kNames[] = {
        {"int32", Element::kInt32}, {"float32", Element::kFloat32}, {"float16", Element::kFloat16}};
    for (auto const& [known, element] : kNames) {
        if (known == name) {
            return element;
        }
    }
    throw std::runtime_error("unknown type '" + name + "'");
}

bool is_tensor(PlanTensor const& tensor) {
    std::size_t const rank = tensor.dims.size();
    return (rank == 2 || rank == 3) && tensor.dims[0] == -1 && (rank == 2 || tensor.dims[1] == -1);
}

bool is_range(ShapeRange const& range) {
    return range.min.rows > 0 && range.min.length > 0 && range.min.rows <= range.opt.rows &&
           range.opt.rows <= range.max.rows && range.min.length <= range.opt.length &&
           range.opt.length <= range.max.length;
}

void parse_line(StandinPlan& plan, std::string const& line) {
    std::istringstream words(line);
    std::string kind;
    std::string element;
    std::string name;
    PlanTensor tensor;
    ShapeRange range;
    std::int64_t bytes = -1;
    words >> kind;
    if ((kind == "input" || kind == "output") && words >> tensor.name >> element) {
        tensor.input = kind == "input";
        tensor.element = element_of(element);
        for (std::int64_t size = 0; tensor.dims.size() < 3 && words >> size;) {
            tensor.dims.push_back(size);
        }
        words.clear();
        if (!is_tensor(tensor)) {
            throw std::runtime_error("a tensor of another shape: '" + line + "'");
        }
        plan.tensors.push_back(tensor);
    } else if (kind == "profile" &&
               words >> range.min.rows >> range.min.length >> range.opt.rows >> range.opt.length >>
                   range.max.rows >> range.max.length &&
               is_range(range)) {
        plan.profiles.push_back(range);
    } else if (kind == "scratch" && words >> bytes && bytes >= 0) {
        plan.scratch.push_back(bytes);
    } else if (kind == "host_code") {
        plan.host_code = true;
    } else if (kind == "layer" && words >> name) {
        plan.layers.push_back(name);
    } else if (kind == "user_allocation") {
        plan.user_allocation = true;
    } else if (kind == "built" && words >> element) {
        // For tests of the builder only.
    } else {
        throw std::runtime_error("bad line '" + line + "'");
    }
    if (words >> kind) {
        throw std::runtime_error("too many words in '" + line + "'");
    }
}

std::uint16_t half_of(float value) {
    return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

void write(PlanTensor const& tensor, void* memory, std::int64_t index, float value) {
    switch (tensor.element) {
        case Element::kFloat32:
            static_cast<float*>(memory)[index] = value;
            return;
        case Element::kFloat16:
            static_cast<std::uint16_t*>(memory)[index] = half_of(value);
            return;
        case Element::kInt32:
            static_cast<std::int32_t*>(memory)[index] = static_cast<std::int32_t>(value);
            return;
    }
}

/// Aborts unless the row is texts one behind the other, each with its own places and spans.
void expect_contract(KernelArguments const& run, std::int32_t row) {
    std::int64_t const first = std::int64_t{row} * run.length;
    std::int32_t last = -1;
    for (std::int64_t at = first; at < first + run.length; ++at) {
        std::int32_t const segment = run.segments[at];
        bool const goes_on = at > first && segment == run.segments[at - 1];
        if (run.ids[at] < 0) {
            contract("the id " + std::to_string(run.ids[at]) + " is out of range");
        }
        if (segment != -1 && !goes_on && segment != ++last) {
            contract("the texts of a row are not numbered in their order");
        }
        if (run.positions[at] != (segment != -1 && goes_on ? run.positions[at - 1] + 1 : 0)) {
            contract("positions do not count the tokens of each text");
        }
    }
    for (std::int32_t span = 0; span < run.spans; ++span) {
        std::int64_t const place = std::int64_t{row} * run.spans + span;
        float const* const counts = run.span_weights + place * run.length;
        auto const [begin, end] = tokens_of_span(counts, run.segments + first, run.length);
        if (end > begin && (run.segments[first + begin] == -1 ||
                            run.segments[first + begin] != run.segments[first + end - 1])) {
            contract("a span is not a part of one text");
        }
    }
}

/// What a graph that is wrong would compute, by the faults that are set.
void plant_mistakes(StandinPlan const& plan, KernelArguments& run, std::vector<std::int32_t>& ids,
                    std::vector<float>& counts) {
    auto const is_max = [&](ShapeRange const& one) {
        return one.max.rows == run.rows && one.max.length == run.length;
    };
    bool const wrong = is_set("longest_is_wrong") && std::ranges::any_of(plan.profiles, is_max);
    ids.assign(run.ids, run.ids + std::int64_t{run.rows} * run.length);
    if (wrong || is_set("mixes_rows")) {
        std::ranges::rotate(ids, ids.begin() + (wrong ? 1 : run.length));
    }
    long const kept = standin::value_of("ignores_after", std::numeric_limits<long>::max());
    long const right = standin::value_of("garbles_after", std::numeric_limits<long>::max());
    for (std::size_t at = 0; at < ids.size(); ++at) {
        ids[at] = run.positions[at] < kept ? ids[at] + (run.positions[at] < right ? 0 : 1) : 0;
    }
    run.ids = ids.data();
    if (is_set("mixes_texts")) {
        std::int64_t const rows = std::int64_t{run.rows} * run.spans;
        counts.assign(run.span_weights, run.span_weights + rows * run.length);
        for (auto row = counts.begin(); row != counts.end(); row += run.length) {
            auto const of_span = std::ranges::subrange(row, row + run.length);
            auto const counted = std::ranges::find_if(of_span, [](float one) { return one != 0; });
            if (counted != of_span.begin() && counted != of_span.end()) {
                counted[-1] = 1;
            }
        }
        run.span_weights = counts.data();
    }
}

/// Of each token, by its id and its place in its text.
std::vector<float> vectors_of_tokens(KernelArguments const& run, std::int64_t columns) {
    auto const width = static_cast<std::int32_t>(columns);
    std::int64_t const tokens = std::int64_t{run.rows} * run.length;
    std::vector<float> vectors(static_cast<std::size_t>(tokens * columns));
    for (std::int64_t at = 0; at < tokens; ++at) {
        std::int32_t const token[] = {run.ids[at], run.positions[at]};
        write_dense(token, 2, vectors.data() + at * columns, width);
    }
    return vectors;
}

/// Of each span the ids in front of those of its first `kept` tokens, or what these tokens weigh.
std::vector<float> words_of_spans(KernelArguments const& run, std::int64_t kept, bool weights) {
    std::int64_t const spans = std::int64_t{run.rows} * run.spans;
    std::vector<float> found(static_cast<std::size_t>(spans * kept));
    for (std::int64_t span = 0; span < spans; ++span) {
        std::int64_t const first = span / run.spans * run.length;
        auto const [begin, end] =
            tokens_of_span(run.span_weights + span * run.length, run.segments + first, run.length);
        for (std::int64_t at = 0; at < std::min<std::int64_t>(end - begin, kept); ++at) {
            std::int64_t const token = first + begin + at;
            auto const word = static_cast<float>(std::max(run.ids[token] - 1, 0));
            found[static_cast<std::size_t>(span * kept + at)] = weights ? run.weights[token] : word;
        }
    }
    return found;
}

}  // namespace

std::vector<std::int64_t> PlanTensor::sizes_of(Shape shape) const {
    std::vector<std::int64_t> sizes = {shape.rows, spans_of(shape.length), shape.length};
    if (dims.size() < sizes.size() || is_of_tokens()) {
        sizes[1] = shape.length;
        sizes.resize(dims.size());
    }
    if (dims.back() != -1) {
        sizes.back() = dims.back();
    }
    return sizes;
}

bool PlanTensor::is_of_tokens() const { return name == kTensorRules[kTokenVectors].name; }

std::size_t PlanTensor::bytes_of(Shape shape) const {
    std::size_t bytes = duovec::bytes_of(element);
    for (std::int64_t const size : sizes_of(shape)) {
        bytes *= static_cast<std::size_t>(size);
    }
    return bytes;
}

bool has_plan_header(std::string_view text, std::string_view flavour) {
    return text.starts_with(header(flavour));
}

std::size_t plan_header_bytes(std::string_view flavour) { return header(flavour).size(); }

StandinPlan parse_plan(std::string_view text, std::string_view flavour) {
    if (!has_plan_header(text, flavour)) {
        throw std::runtime_error("it is no plan of " + std::string(flavour));
    }
    StandinPlan plan;
    std::istringstream lines{std::string(text.substr(plan_header_bytes(flavour)))};
    for (std::string line; std::getline(lines, line);) {
        parse_line(plan, line);
    }
    if (plan.tensors.empty() || plan.profiles.empty() ||
        plan.profiles.size() != plan.scratch.size()) {
        throw std::runtime_error("it is not whole");
    }
    return plan;
}

KernelArguments arguments_of(StandinPlan const& plan, Shape shape,
                             std::vector<void*> const& memory) {
    KernelArguments run;
    auto const find = [&](TensorName name) -> void* {
        auto const found =
            std::ranges::find(plan.tensors, kTensorRules[name].name, &PlanTensor::name);
        if (found == plan.tensors.end()) {
            return nullptr;
        }
        run.columns = static_cast<std::int32_t>(found->dims.back());
        return memory[static_cast<std::size_t>(found - plan.tensors.begin())];
    };
    run.ids = static_cast<std::int32_t const*>(find(kInputIds));
    run.positions = static_cast<std::int32_t const*>(find(kPositions));
    run.segments = static_cast<std::int32_t const*>(find(kSegments));
    run.span_weights = static_cast<float const*>(find(kSpanWeights));
    run.weights = static_cast<float*>(find(kTokenWeights));
    // The last one: its columns stay.
    run.dense = static_cast<float*>(find(kDense));
    run.rows = shape.rows;
    run.length = shape.length;
    run.spans = spans_of(shape.length);
    run.writes = 1;
    return run;
}

void run_plan(StandinPlan const& plan, Shape shape, std::vector<void*> const& memory, bool nan) {
    KernelArguments run = arguments_of(plan, shape, memory);
    std::vector<float> dense(static_cast<std::size_t>(run.rows * run.spans * run.columns));
    std::vector<float> weights(static_cast<std::size_t>(tokens_of(shape)));
    run.dense = dense.data();
    run.weights = weights.data();
    for (std::int32_t row = 0; row < run.rows; ++row) {
        expect_contract(run, row);
    }
    std::vector<std::int32_t> ids;
    std::vector<float> counts;
    plant_mistakes(plan, run, ids, counts);
    long const finite = standin::value_of("nan_after", std::numeric_limits<long>::max());
    for (std::int32_t row = 0; row < run.rows; ++row) {
        run_row(run, row);
        std::span const places(run.positions + std::int64_t{row} * run.length, run.length);
        bool const is_long = std::ranges::any_of(places, [&](long one) { return one >= finite; });
        auto const of_row = std::int64_t{run.spans} * run.columns;
        std::fill_n(dense.begin() + row * of_row, is_long ? of_row : 0, kNan);
    }
    std::fill_n(dense.begin(), nan ? run.columns : 0, kNan);
    if (is_set("adds_up_anyhow")) {
        static std::atomic<int> runs = 0;
        dense.front() += static_cast<float>(runs++ % 3) * 1e-6F;
    }
    for (std::size_t index = 0; index < plan.tensors.size(); ++index) {
        PlanTensor const& tensor = plan.tensors[index];
        auto const is = [&](TensorName name) { return tensor.name == kTensorRules[name].name; };
        bool const is_weights = is(kWordWeights);
        std::int64_t const columns = tensor.dims.back();
        std::vector<float> const values = is_weights || is(kWords)
                                              ? words_of_spans(run, columns, is_weights)
                                          : tensor.is_of_tokens() ? vectors_of_tokens(run, columns)
                                          : tensor.dims.size() == 2 ? weights
                                                                    : dense;
        for (std::size_t at = 0; !tensor.input && at < values.size(); ++at) {
            write(tensor, memory[index], static_cast<std::int64_t>(at), values[at]);
        }
    }
}

}  // namespace duovec::standin
