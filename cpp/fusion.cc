#include "fusion.h"

namespace duovec {
namespace {

constexpr std::string_view kName = "Name: ";
/// In the names of all kernels that compute softmax(query · key + mask) · value at once.
constexpr std::string_view kFusedAttention = "_mha_";

}  // namespace

LayerCounts count_layers(std::string_view list) {
    LayerCounts counts;
    while (!list.empty()) {
        std::string_view const line = list.substr(0, list.find('\n'));
        list.remove_prefix(line.size() < list.size() ? line.size() + 1 : line.size());
        // Inputs and outputs of the plan follow behind an empty line.
        if (line.empty()) {
            break;
        }
        if (line.starts_with(kName)) {
            ++counts.all;
            bool const fused = line.substr(0, line.find(',')).find(kFusedAttention) != line.npos;
            counts.fused_attentions += fused ? 1 : 0;
        }
    }
    return counts;
}

Fusion judge_fusion(std::int32_t attentions, std::size_t profiles, LayerCounts const& layers) {
    if (attentions == 0 || layers.all == 0) {
        return Fusion::kUnknown;
    }
    bool const all = static_cast<std::size_t>(layers.fused_attentions) >=
                     static_cast<std::size_t>(attentions) * profiles;
    return all ? Fusion::kFused : Fusion::kNotFused;
}

}  // namespace duovec
