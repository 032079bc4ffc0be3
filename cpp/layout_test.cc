#include "layout.h"

#include "testing/check.h"

using duovec::Element;
using duovec::kTensorAlignment;
using duovec::lay_out;
using duovec::Layout;
using duovec::TensorElements;

namespace {

constexpr TensorElements kWide{Element::kInt64, Element::kFloat32, Element::kFloat16, true};

}  // namespace

TEST(tensors_lie_aligned_one_behind_the_other) {
    Layout const layout = lay_out({3, 17}, kWide, 24);
    CHECK((layout.input_ids == duovec::Region{0, 3 * 17 * 8}));
    CHECK((layout.attention_mask == duovec::Region{512, 3 * 17 * 8}));
    CHECK(layout.inputs_bytes == 512 + 3 * 17 * 8);
    CHECK((layout.dense == duovec::Region{0, 3 * 24 * 4}));
    CHECK((layout.token_weights == duovec::Region{512, 3 * 17 * 2}));
    CHECK(layout.outputs_bytes == 512 + 3 * 17 * 2);
}

TEST(every_tensor_begins_at_a_multiple_of_the_alignment_and_overlaps_none) {
    for (int rows = 1; rows <= 64; rows += 7) {
        for (int length = 1; length <= 520; length += 13) {
            Layout const layout = lay_out({rows, length}, kWide, 384);
            CHECK(layout.attention_mask.offset % kTensorAlignment == 0);
            CHECK(layout.token_weights.offset % kTensorAlignment == 0);
            CHECK(layout.attention_mask.offset >= layout.input_ids.bytes);
            CHECK(layout.token_weights.offset >= layout.dense.bytes);
        }
    }
}

TEST(a_model_without_lexical_weights_has_no_place_for_them) {
    TensorElements elements = kWide;
    elements.has_token_weights = false;
    Layout const layout = lay_out({2, 8}, elements, 64);
    CHECK(layout.token_weights.bytes == 0);
    CHECK(layout.outputs_bytes == layout.dense.bytes);
}

TEST(the_largest_shapes_do_not_overflow) {
    Layout const layout = lay_out({4096, 8192}, kWide, 4096);
    CHECK(layout.input_ids.bytes == std::size_t{4096} * 8192 * 8);
}
