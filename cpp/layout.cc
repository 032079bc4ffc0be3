#include "layout.h"

namespace duovec {
namespace {

std::size_t aligned(std::size_t bytes) {
    return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

std::string axis_text(Axis axis, std::int32_t hidden_size) {
    constexpr char const* kNames[] = {"rows", "spans", "length"};
    return axis == Axis::kHidden ? std::to_string(hidden_size)
                                 : kNames[static_cast<std::size_t>(axis)];
}

}  // namespace

Element element_of(std::size_t tensor, TensorElements const& elements) {
    switch (tensor) {
        case kDense:
            return elements.dense;
        case kTokenWeights:
            return elements.token_weights;
        default:
            return kTensorRules[tensor].element;
    }
}

std::string shape_text(TensorRule const& rule, std::int32_t hidden_size) {
    std::string text;
    for (Axis const axis : rule.axes) {
        text += (text.empty() ? "[" : ", ") + axis_text(axis, hidden_size);
    }
    return text + "]";
}

Layout lay_out(Shape shape, TensorElements const& elements, std::int32_t hidden_size) {
    Layout layout;
    std::size_t end = 0;
    for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
        end = tensor == kInputs ? 0 : end;
        std::size_t bytes = bytes_of(element_of(tensor, elements));
        for (Axis const axis : kTensorRules[tensor].axes) {
            bytes *= static_cast<std::size_t>(size_of(axis, shape, hidden_size));
        }
        bool const is_there = tensor != kTokenWeights || elements.has_token_weights;
        layout.tensors[tensor] = {aligned(end), is_there ? bytes : 0};
        end = layout.tensors[tensor].offset + layout.tensors[tensor].bytes;
        (tensor < kInputs ? layout.inputs_bytes : layout.outputs_bytes) = end;
    }
    return layout;
}

}  // namespace duovec
