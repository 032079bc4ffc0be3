#include "layout.h"

namespace duovec {
namespace {

std::size_t aligned(std::size_t bytes) {
    return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

std::string axis_text(Axis axis, std::int32_t columns) {
    constexpr char const* kNames[] = {"rows", "spans", "length"};
    return axis == Axis::kColumns ? std::to_string(columns)
                                  : kNames[static_cast<std::size_t>(axis)];
}

}  // namespace

std::string shape_text(TensorRule const& rule, std::int32_t columns) {
    std::string text;
    for (Axis const axis : rule.axes) {
        text += (text.empty() ? "[" : ", ") + axis_text(axis, columns);
    }
    return text + "]";
}

Layout lay_out(Shape shape, TensorTypes const& types) {
    Layout layout;
    std::size_t end = 0;
    for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
        end = tensor == kInputs ? 0 : end;
        auto const& type = types[tensor];
        std::size_t bytes = type ? bytes_of(type->element) : 0;
        for (Axis const axis : kTensorRules[tensor].axes) {
            bytes *= static_cast<std::size_t>(size_of(axis, shape, type ? type->columns : 0));
        }
        layout.tensors[tensor] = {aligned(end), bytes};
        end = layout.tensors[tensor].offset + layout.tensors[tensor].bytes;
        (tensor < kInputs ? layout.inputs_bytes : layout.outputs_bytes) = end;
    }
    return layout;
}

}  // namespace duovec
