#include "fusion.h"

#include <string>

#include "testing/check.h"

using duovec::count_layers;
using duovec::Fusion;
using duovec::judge_fusion;
using duovec::LayerCounts;

namespace {

/// As TensorRT-RTX 1.7.1 lists a layer of a graph with two profiles, each line cut behind its type.
std::string list(std::string const& attention) {
    return "Layers:\n"
           "Name: __mye40509_0_myl0_0, LayerType: shape_call\n"
           "Name: __mye137742+__mye137730+__mye137718_myl0_13, LayerType: gemm\n"
           "Name: " +
           attention +
           "_myl0_17, LayerType: kgen\n"
           "Name: layer1.attention.out.product_U73_myl0_18, LayerType: gemm\n"
           "Name: __mye40509_0_myl1_0, LayerType: shape_call\n"
           "Name: " +
           attention +
           "_myl1_17, LayerType: kgen\n"
           "\n"
           "I/O Tensors:\n"
           " Name: input_ids, IOMode: Input, DataType: Int32\n"
           "Name: no_mha_layer, IOMode: Output\n";
}

}  // namespace

TEST(layers_of_all_profiles_are_counted) {
    LayerCounts const fused = count_layers(list("_gemm_mha_v2"));
    CHECK(fused.all == 6 && fused.fused_attentions == 2);
    LayerCounts const single = count_layers(list("layer0.shares_U1"));
    CHECK(single.all == 6 && single.fused_attentions == 0);
    CHECK(count_layers("Layers:\n").all == 0);
    CHECK(count_layers("Layers:\nName: last_mha_v2").fused_attentions == 1);
}

TEST(an_attention_must_be_one_kernel_in_every_profile) {
    CHECK(judge_fusion(1, 2, {6, 2}) == Fusion::kFused);
    CHECK(judge_fusion(1, 2, {6, 1}) == Fusion::kNotFused);
    CHECK(judge_fusion(2, 1, {6, 0}) == Fusion::kNotFused);
}

TEST(missing_lists_and_unknown_graphs_tell_nothing) {
    CHECK(judge_fusion(2, 1, {}) == Fusion::kUnknown);
    CHECK(judge_fusion(0, 1, {6, 0}) == Fusion::kUnknown);
}
