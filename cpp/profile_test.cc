#include "profile.h"

#include <vector>

#include "testing/check.h"

using duovec::check_profiles;
using duovec::choose_profile;
using duovec::covers;
using duovec::Profile;
using duovec::testing::contains;
using duovec::testing::thrown;

namespace {

Profile profile(char const* name, std::int32_t rows_max, std::int32_t length_max) {
    return {name, {1, 1, rows_max}, {1, 1, length_max}};
}

std::string refusal(std::vector<Profile> const& profiles, std::int32_t length_max = 512) {
    return thrown([&] { check_profiles(profiles, length_max); });
}

}  // namespace

TEST(ascending_profiles_are_accepted) {
    CHECK(refusal({profile("a", 8, 128), profile("b", 64, 512)}).empty());
    CHECK(refusal({{"one", {1, 1, 1}, {7, 7, 7}}}).empty());
}

TEST(sizes_must_ascend_from_one) {
    CHECK(contains(refusal({{"a", {2, 1, 4}, {1, 1, 1}}}), "must ascend"));
    CHECK(contains(refusal({{"a", {1, 5, 4}, {1, 1, 1}}}), "must ascend"));
    CHECK(contains(refusal({{"a", {1, 1, 4}, {0, 1, 1}}}), "must ascend"));
    CHECK(contains(refusal({{"a", {1, 1, 4}, {1, 9, 8}}}), "a=1x1:1x9:4x8"));
}

TEST(lengths_over_the_position_table_are_refused) {
    CHECK(contains(refusal({profile("a", 8, 513)}), "512 positions"));
}

TEST(absurd_products_equal_names_and_no_profiles_are_refused) {
    CHECK(contains(refusal({profile("a", 2147483647, 512)}), "tokens"));
    CHECK(contains(refusal({profile("a", 1, 1), profile("a", 2, 2)}), "same name"));
    CHECK(contains(refusal({}), "at least one"));
}

TEST(a_profile_covers_its_ranges_and_nothing_else) {
    Profile const one = {"a", {2, 4, 8}, {16, 64, 128}};
    CHECK(covers(one, 2, 16) && covers(one, 8, 128));
    CHECK(!covers(one, 1, 16) && !covers(one, 9, 16));
    CHECK(!covers(one, 2, 15) && !covers(one, 2, 129));
}

TEST(the_smallest_covering_profile_is_chosen) {
    std::vector<Profile> const all = {profile("long", 4, 512), profile("short", 8, 128),
                                      profile("wide", 64, 128)};
    CHECK(choose_profile(all, 1, 10) == 1U);
    CHECK(choose_profile(all, 9, 10) == 2U);
    CHECK(choose_profile(all, 1, 400) == 0U);
    CHECK(!choose_profile(all, 5, 400));
}
