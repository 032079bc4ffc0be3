#include "fusion.h"

#include <vector>

#include "testing/check.h"

using duovec::AttentionShape;
using duovec::Fusion;
using duovec::judge_fusion;
using duovec::Profile;

namespace {

/// One row of `length` tokens, 256 wide, 4 heads: what TensorRT-RTX 1.7.1 said of such graphs.
Fusion judged(std::int32_t element_bytes, std::int32_t length, std::int64_t scratch_bytes) {
    std::vector<Profile> const profiles = {{"a", {1, 1, 1}, {1, 1, length}}};
    std::vector<std::int64_t> const scratch = {scratch_bytes};
    return judge_fusion({4, 256, element_bytes}, profiles, scratch);
}

}  // namespace

TEST(half_precision_is_seen_as_fused) {
    CHECK(judged(2, 512, 10290176) == Fusion::kFused);
    CHECK(judged(2, 1024, 12388352) == Fusion::kFused);
    CHECK(judged(2, 2048, 16584704) == Fusion::kFused);
    CHECK(judged(2, 4096, 24977408) == Fusion::kFused);
}

TEST(f32_is_seen_as_not_fused) {
    CHECK(judged(4, 512, 15534080) == Fusion::kNotFused);
    CHECK(judged(4, 1024, 39849984) == Fusion::kNotFused);
    CHECK(judged(4, 2048, 146808832) == Fusion::kNotFused);
    CHECK(judged(4, 4096, 562053120) == Fusion::kNotFused);
}

TEST(short_profiles_tell_nothing) { CHECK(judged(2, 128, 9000000) == Fusion::kUnknown); }

TEST(the_longest_profile_is_judged) {
    std::vector<Profile> const profiles = {{"wide", {1, 1, 64}, {1, 1, 128}},
                                           {"long", {1, 1, 8}, {1, 1, 2048}}};
    std::vector<std::int64_t> const scratch = {42000000, 75530240};
    CHECK(judge_fusion({4, 256, 2}, profiles, scratch) == Fusion::kFused);
}

TEST(missing_numbers_tell_nothing) {
    std::vector<Profile> const profiles = {{"a", {1, 1, 1}, {1, 1, 4096}}};
    CHECK(judge_fusion({4, 256, 2}, profiles, {}) == Fusion::kUnknown);
    CHECK(judge_fusion({}, profiles, std::vector<std::int64_t>{1}) == Fusion::kUnknown);
}
