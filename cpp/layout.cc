#include "layout.h"

namespace duovec {
namespace {

std::size_t aligned(std::size_t bytes) {
    return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

Region behind(Region const& place, std::size_t bytes) {
    return {aligned(place.offset + place.bytes), bytes};
}

}  // namespace

std::size_t bytes_of(Element element) {
    switch (element) {
        case Element::kInt64:
            return 8;
        case Element::kInt32:
        case Element::kFloat32:
            return 4;
        case Element::kFloat16:
            return 2;
    }
    return 0;
}

std::int64_t tokens_of(Shape shape) { return std::int64_t{shape.rows} * shape.length; }

Layout lay_out(Shape shape, TensorElements const& elements, std::int32_t hidden_size) {
    auto const tokens = static_cast<std::size_t>(tokens_of(shape));
    auto const floats = static_cast<std::size_t>(std::int64_t{shape.rows} * hidden_size);
    std::size_t const weights = elements.has_token_weights ? tokens : 0;
    Layout layout;
    layout.input_ids = {0, tokens * bytes_of(elements.inputs)};
    layout.attention_mask = behind(layout.input_ids, tokens * bytes_of(elements.inputs));
    layout.inputs_bytes = layout.attention_mask.offset + layout.attention_mask.bytes;
    layout.dense = {0, floats * bytes_of(elements.dense)};
    layout.token_weights = behind(layout.dense, weights * bytes_of(elements.token_weights));
    layout.outputs_bytes = layout.token_weights.offset + layout.token_weights.bytes;
    return layout;
}

}  // namespace duovec
