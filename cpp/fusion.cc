#include "fusion.h"

#include <algorithm>
#include <cstddef>

namespace duovec {
namespace {

/// What every plan takes, whatever its shape: seen as 8.0 to 8.5 MB for all graphs.
constexpr std::int64_t kConstantBytes = 8 << 20;
/// Values of a token that fused kernels keep, in units of the hidden size: seen as 8 (four of the
/// wide feed-forward layer, and query, key, value, residual).
constexpr std::int64_t kHiddenSizesPerToken = 8;

}  // namespace

Fusion judge_fusion(AttentionShape const& attention, std::span<Profile const> profiles,
                    std::span<std::int64_t const> scratch_bytes) {
    if (attention.heads <= 0 || attention.element_bytes <= 0 || profiles.empty() ||
        profiles.size() != scratch_bytes.size()) {
        return Fusion::kUnknown;
    }
    auto const longest = std::ranges::max_element(
        profiles, {}, [](Profile const& profile) { return profile.length.max; });
    std::int64_t const length = longest->length.max;
    std::int64_t const linear =
        kHiddenSizesPerToken * attention.hidden_size * attention.element_bytes;
    std::int64_t const scores = length * attention.heads * attention.element_bytes;
    if (scores < linear) {
        return Fusion::kUnknown;
    }
    auto const index = static_cast<std::size_t>(longest - profiles.begin());
    std::int64_t const per_token = (scratch_bytes[index] - kConstantBytes) / tokens_max(*longest);
    // One matrix of scores is the least that is written; half of one is the middle.
    return per_token - linear > scores / 2 ? Fusion::kNotFused : Fusion::kFused;
}

}  // namespace duovec
