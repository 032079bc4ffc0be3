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

enum class Fusion { kUnknown, kFused, kNotFused };

/// The layers of all profiles of a plan; zeros when the library gave no list.
struct LayerCounts {
    std::int32_t all = 0;
    std::int32_t fused_attentions = 0;
};

/// How the line of the log begins that has the list.
constexpr std::string_view kLayerList = "Layers:\n";

/// `list` has a line for each layer behind the first one, which begins with its name.
LayerCounts count_layers(std::string_view list);

/// Whether each of a graph's attentions is one kernel in every profile: kUnknown for graphs without
/// a known attention and plans without a list.
Fusion judge_fusion(std::int32_t attentions, std::size_t profiles, LayerCounts const& layers);

}  // namespace duovec
