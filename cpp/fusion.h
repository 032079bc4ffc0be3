// Whether attention was fused, told from the scratch memory of a plan, without a GPU. Pure.
//
// A fused kernel keeps the scores on the chip: scratch memory then grows with the number of tokens.
// Otherwise whole [rows, heads, length, length] matrices are written, and it grows with the square.
//
// Thread safety: values and free functions without state. Ownership: none.

#pragma once

#include <cstdint>
#include <span>

#include "profile.h"

namespace duovec {

enum class Fusion { kUnknown, kFused, kNotFused };

/// What the graph says of its attention; zeros when nothing was found.
struct AttentionShape {
    std::int32_t heads = 0;
    std::int32_t hidden_size = 0;
    /// Bytes of one score.
    std::int32_t element_bytes = 0;
};

/// `scratch_bytes[i]` is what the largest shape of `profiles[i]` takes. The longest profile is
/// judged, and only when a matrix of scores would stand out: kUnknown for short ones, for graphs
/// without a known attention, and when there is not one number for each profile.
Fusion judge_fusion(AttentionShape const& attention, std::span<Profile const> profiles,
                    std::span<std::int64_t const> scratch_bytes);

}  // namespace duovec
