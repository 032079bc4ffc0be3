// Whether attention was fused, told from a builder's list of a plan's layers, without a GPU. Pure.
//
// A fused kernel keeps the scores on the chip. Otherwise whole [rows, heads, length, length]
// matrices are written to memory.
//
// Thread safety: values and free functions without state. Ownership: none.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace duovec {

enum class Fusion : std::uint8_t { kUnknown, kFused, kNotFused };

/// The layers of all profiles of a plan; zeros when the library gave no list.
struct LayerCounts {
    std::int32_t all = 0;
    std::int32_t fused_attentions = 0;
};

/// How the line of the log begins that has the list.
constexpr std::string_view kLayerList = "Layers:\n";

/// `list` has a line for each layer behind the first one, which begins with its name.
constexpr LayerCounts count_layers(std::string_view list) {
    LayerCounts counts;
    while (!list.empty()) {
        std::string_view const line = list.substr(0, list.find('\n'));
        list.remove_prefix(line.size() < list.size() ? line.size() + 1 : line.size());
        // Inputs and outputs of the plan follow behind an empty line.
        if (line.empty()) {
            break;
        }
        if (line.starts_with("Name: ")) {
            ++counts.all;
            // In the names of all kernels that compute softmax(query · key + mask) · value at once.
            bool const fused = line.substr(0, line.find(',')).find("_mha_") != line.npos;
            counts.fused_attentions += fused ? 1 : 0;
        }
    }
    return counts;
}

/// Whether each of a graph's attentions is one kernel in every profile: kUnknown for graphs without
/// a known attention and plans without a list.
constexpr Fusion judge_fusion(std::int32_t attentions, std::size_t profiles,
                              LayerCounts const& layers) {
    if (attentions == 0 || layers.all == 0) {
        return Fusion::kUnknown;
    }
    bool const all = static_cast<std::size_t>(layers.fused_attentions) >=
                     static_cast<std::size_t>(attentions) * profiles;
    return all ? Fusion::kFused : Fusion::kNotFused;
}

}  // namespace duovec
