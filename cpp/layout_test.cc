#include "layout.h"

#include "testing/check.h"

using duovec::Element;
using duovec::kDense;
using duovec::kInputs;
using duovec::kTensorAlignment;
using duovec::kTensors;
using duovec::kTokenVectors;
using duovec::kTokenWeights;
using duovec::kWords;
using duovec::kWordWeights;
using duovec::lay_out;
using duovec::Layout;
using duovec::Region;
using duovec::TensorType;
using duovec::TensorTypes;

namespace {

TensorTypes types_of(std::int32_t columns) {
    TensorTypes types = duovec::kInputTypes;
    types[kDense] = TensorType{Element::kFloat32, columns};
    types[kTokenWeights] = TensorType{Element::kFloat16};
    types[kWords] = TensorType{Element::kInt32, 3};
    types[kWordWeights] = TensorType{Element::kFloat16, 3};
    types[kTokenVectors] = TensorType{Element::kFloat16, 5};
    return types;
}

}  // namespace

TEST(tensors_lie_aligned_one_behind_the_other) {
    Layout const layout = lay_out({3, 17}, types_of(24));
    constexpr std::size_t kTokens = 3 * 17;
    // Two spans a row.
    CHECK((layout.tensors == std::array<Region, kTensors>{{{0, kTokens * 4},
                                                           {256, kTokens * 4},
                                                           {512, kTokens * 4},
                                                           {768, kTokens * 4 * 2},
                                                           {0, 3 * 2 * 24 * 4},
                                                           {768, kTokens * 2},
                                                           {1024, 3 * 2 * 3 * 4},
                                                           {1280, 3 * 2 * 3 * 2},
                                                           {1536, kTokens * 5 * 2}}}));
    CHECK(layout.inputs_bytes == 768 + kTokens * 4 * 2);
    CHECK(layout.outputs_bytes == 1536 + kTokens * 5 * 2);
}

TEST(every_tensor_begins_at_a_multiple_of_the_alignment_and_overlaps_none) {
    for (int rows = 1; rows <= 64; rows += 7) {
        for (int length = 1; length <= 520; length += 13) {
            Layout const layout = lay_out({rows, length}, types_of(384));
            for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
                Region const& place = layout.tensors[tensor];
                CHECK(place.offset % kTensorAlignment == 0);
                bool const is_first = tensor == 0 || tensor == kInputs;
                Region const before = is_first ? Region{} : layout.tensors[tensor - 1];
                CHECK(place.offset >= before.offset + before.bytes);
            }
        }
    }
}

TEST(a_row_has_a_span_for_every_eight_of_its_tokens) {
    CHECK(duovec::spans_of(1) == 1 && duovec::spans_of(15) == 1);
    CHECK(duovec::spans_of(16) == 2 && duovec::spans_of(8192) == 1024);
}

TEST(outputs_that_a_plan_has_not_have_no_place) {
    TensorTypes types = types_of(64);
    for (std::size_t other = kDense + 1; other < kTensors; ++other) {
        types[other].reset();
    }
    Layout const layout = lay_out({2, 8}, types);
    CHECK(layout.tensors[kTokenVectors].bytes == 0);
    CHECK(layout.outputs_bytes == layout.tensors[kDense].bytes);
}

TEST(the_largest_shapes_do_not_overflow) {
    Layout const layout = lay_out({4096, 8192}, types_of(4096));
    CHECK(layout.tensors[kDense].bytes == std::size_t{4096} * 1024 * 4096 * 4);
}

TEST(shapes_are_told_in_words) {
    CHECK(shape_text(duovec::kTensorRules[kDense], 384) == "[rows, spans, 384]");
    CHECK(shape_text(duovec::kTensorRules[duovec::kSpanWeights], 0) == "[rows, spans, length]");
}
