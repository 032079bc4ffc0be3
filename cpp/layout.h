// Where the tensors of one shape lie in a session's two blocks of memory, inputs and outputs. Pure.
//
// Each block is copied whole, so its tensors lie next to each other: one copy in, one copy out.
//
// Thread safety: values and free functions without state. Ownership: none.

#pragma once

#include <cstddef>
#include <cstdint>

namespace duovec {

/// Types that sessions can fill or read.
enum class Element { kInt32, kInt64, kFloat32, kFloat16 };

std::size_t bytes_of(Element element);

/// The tensors' types in a plan.
struct TensorElements {
    /// Of both inputs.
    Element inputs = Element::kInt32;
    Element dense = Element::kFloat32;
    Element token_weights = Element::kFloat32;
    bool has_token_weights = false;
};

/// A batch's size.
struct Shape {
    std::int32_t rows = 1;
    std::int32_t length = 1;

    bool operator==(Shape const&) const = default;
    auto operator<=>(Shape const&) const = default;
};

std::int64_t tokens_of(Shape shape);

/// A tensor's place in its block, in bytes.
struct Region {
    std::size_t offset = 0;
    std::size_t bytes = 0;

    bool operator==(Region const&) const = default;
};

struct Layout {
    Region input_ids;
    Region attention_mask;
    std::size_t inputs_bytes = 0;
    Region dense;
    /// Empty when the model has no lexical weights.
    Region token_weights;
    std::size_t outputs_bytes = 0;

    bool operator==(Layout const&) const = default;
};

/// TensorRT asks for addresses that are multiples of this.
constexpr std::size_t kTensorAlignment = 256;

Layout lay_out(Shape shape, TensorElements const& elements, std::int32_t hidden_size);

}  // namespace duovec
