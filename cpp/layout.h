// The tensors of the graph's contract, and where those of one shape lie in a session's two blocks
// of memory, inputs and outputs. Pure.
//
// Each block is copied whole, so its tensors lie next to each other: one copy in, one copy out.
//
// Thread safety: values and free functions without state. Ownership: none.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace duovec {

/// Types that sessions can fill or read.
enum class Element : std::uint8_t { kInt32, kFloat32, kFloat16 };

constexpr std::size_t bytes_of(Element element) { return element == Element::kFloat16 ? 2 : 4; }

/// What a plan has of a tensor.
struct TensorType {
    Element element = Element::kFloat32;
    /// The size of the last axis, where a batch's shape does not tell it.
    std::int32_t columns = 0;
};

/// A batch's size.
struct Shape {
    std::int32_t rows = 1;
    std::int32_t length = 1;

    bool operator==(Shape const&) const = default;
    auto operator<=>(Shape const&) const = default;
};

/// "4x64".
inline std::string to_string(Shape shape) {
    return std::to_string(shape.rows) + "x" + std::to_string(shape.length);
}

constexpr std::int64_t tokens_of(Shape shape) { return std::int64_t{shape.rows} * shape.length; }

/// Spans that a row of this length has room for, as the server's `Bucket` has it.
constexpr std::int32_t spans_of(std::int32_t length) { return std::max(1, length / 8); }

/// What an axis of a tensor counts.
enum class Axis { kRows, kSpans, kLength, kColumns };

enum TensorName : std::size_t {
    kInputIds,
    kPositions,
    kSegments,
    kSpanWeights,
    kDense,
    /// Of models that weigh the tokens of a text.
    kTokenWeights,
    /// Of models that weigh words which a text need not have: token ids, and the weight of each.
    kWords,
    kWordWeights,
    /// Of models that have them. The last one, so that a copy can leave it out.
    kTokenVectors,
};

constexpr std::size_t kInputs = 4;
constexpr std::size_t kTensors = 9;

/// What a tensor is called, and what its axes are.
struct TensorRule {
    char const* name;
    std::span<Axis const> axes;
};

constexpr Axis kTokenAxes[] = {Axis::kRows, Axis::kLength};
constexpr Axis kWeightAxes[] = {Axis::kRows, Axis::kSpans, Axis::kLength};
constexpr Axis kDenseAxes[] = {Axis::kRows, Axis::kSpans, Axis::kColumns};
constexpr Axis kVectorAxes[] = {Axis::kRows, Axis::kLength, Axis::kColumns};

/// Inputs first, in the order of TensorName.
constexpr std::array<TensorRule, kTensors> kTensorRules = {{
    {"input_ids", kTokenAxes},
    {"positions", kTokenAxes},
    {"segments", kTokenAxes},
    {"span_weights", kWeightAxes},
    {"dense", kDenseAxes},
    {"token_weights", kTokenAxes},
    {"words", kDenseAxes},
    {"word_weights", kDenseAxes},
    {"token_vectors", kVectorAxes},
}};

constexpr std::span<TensorRule const> kInputRules = std::span(kTensorRules).first(kInputs);

/// By TensorName; none for an output that the plan has not.
using TensorTypes = std::array<std::optional<TensorType>, kTensors>;

/// What the contract says of the inputs, and no outputs.
constexpr TensorTypes kInputTypes = {TensorType{Element::kInt32}, TensorType{Element::kInt32},
                                     TensorType{Element::kInt32}, TensorType{Element::kFloat32}};

constexpr std::int32_t size_of(Axis axis, Shape shape, std::int32_t columns) {
    switch (axis) {
        case Axis::kRows:
            return shape.rows;
        case Axis::kSpans:
            return spans_of(shape.length);
        case Axis::kLength:
            return shape.length;
        case Axis::kColumns:
            break;
    }
    return columns;
}

/// "[rows, spans, 384]".
std::string shape_text(TensorRule const& rule, std::int32_t columns);

/// A tensor's place in its block, in bytes.
struct Region {
    std::size_t offset = 0;
    std::size_t bytes = 0;

    bool operator==(Region const&) const = default;
};

struct Layout {
    /// By TensorName; of no bytes where the plan has no such output.
    std::array<Region, kTensors> tensors;
    std::size_t inputs_bytes = 0;
    std::size_t outputs_bytes = 0;
};

/// TensorRT asks for addresses that are multiples of this.
constexpr std::size_t kTensorAlignment = 256;

Layout lay_out(Shape shape, TensorTypes const& types);

}  // namespace duovec
