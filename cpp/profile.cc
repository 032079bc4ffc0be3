#include "profile.h"

#include <set>

#include "error.h"

namespace duovec {
namespace {

/// More than any device holds; keeps all products far from overflow.
constexpr std::int64_t kTokensMax = std::int64_t{1} << 24;

[[noreturn]] void refuse(Profile const& profile, std::string const& problem) {
    throw Error(ErrorKind::kRequest, "profile " + to_string(profile) + ": " + problem);
}

bool ascends(Range const& range) {
    return 1 <= range.min && range.min <= range.opt && range.opt <= range.max;
}

bool within(Range const& range, std::int32_t size) {
    return range.min <= size && size <= range.max;
}

}  // namespace

void check_profiles(std::span<Profile const> profiles, std::int32_t length_max) {
    if (profiles.empty()) {
        throw Error(ErrorKind::kRequest, "a plan needs at least one profile");
    }
    std::set<std::string> names;
    for (Profile const& profile : profiles) {
        if (!ascends(profile.rows) || !ascends(profile.length)) {
            refuse(profile, "its sizes must ascend from 1: smallest, usual, largest");
        }
        if (profile.length.max > length_max) {
            refuse(profile, "the model has " + std::to_string(length_max) + " positions");
        }
        if (tokens_max(profile) > kTokensMax) {
            refuse(profile,
                   "its largest shape has more than " + std::to_string(kTokensMax) + " tokens");
        }
        if (!names.insert(profile.name).second) {
            refuse(profile, "another profile has the same name");
        }
    }
}

bool covers(Profile const& profile, std::int32_t rows, std::int32_t length) {
    return within(profile.rows, rows) && within(profile.length, length);
}

std::optional<std::size_t> choose_profile(std::span<Profile const> profiles, std::int32_t rows,
                                          std::int32_t length) {
    std::optional<std::size_t> best;
    for (std::size_t index = 0; index < profiles.size(); ++index) {
        bool const smaller = !best || tokens_max(profiles[index]) < tokens_max(profiles[*best]);
        if (covers(profiles[index], rows, length) && smaller) {
            best = index;
        }
    }
    return best;
}

std::int64_t tokens_max(Profile const& profile) {
    return std::int64_t{profile.rows.max} * profile.length.max;
}

std::string to_string(Profile const& profile) {
    auto const shape = [](std::int32_t rows, std::int32_t length) {
        return std::to_string(rows) + "x" + std::to_string(length);
    };
    return profile.name + "=" + shape(profile.rows.min, profile.length.min) + ":" +
           shape(profile.rows.opt, profile.length.opt) + ":" +
           shape(profile.rows.max, profile.length.max);
}

}  // namespace duovec
