// Shapes and optimization profiles: what a plan is built for, and which profile runs a batch. Pure.
//
// Thread safety: values and free functions without state. Ownership: none.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "error.h"
#include "layout.h"

namespace duovec {

/// Smallest, most frequent and largest size of one axis.
struct Range {
    std::int32_t min = 1;
    std::int32_t opt = 1;
    std::int32_t max = 1;

    bool ascends() const { return 1 <= min && min <= opt && opt <= max; }
    bool has(std::int32_t size) const { return min <= size && size <= max; }
    bool operator==(Range const&) const = default;
};

/// Shapes [rows, length] that one optimization profile covers.
struct Profile {
    std::string name;
    Range rows;
    Range length;

    bool operator==(Profile const&) const = default;
};

/// Tokens of the largest shape.
inline std::int64_t tokens_max(Profile const& profile) {
    return std::int64_t{profile.rows.max} * profile.length.max;
}

/// "latency=1x1:4x64:8x128".
inline std::string to_string(Profile const& profile) {
    auto const& [name, rows, length] = profile;
    return name + "=" + to_string(Shape{rows.min, length.min}) + ":" +
           to_string(Shape{rows.opt, length.opt}) + ":" + to_string(Shape{rows.max, length.max});
}

/// Throws Error(kRequest) unless every range ascends from at least 1, no length is over
/// `length_max`, no product of the largest sizes overflows, and the names differ.
/// TensorRT itself accepts min > opt and lengths over the position table.
inline void check_profiles(std::span<Profile const> profiles, std::int32_t length_max) {
    // More than any device holds; keeps all products far from overflow.
    constexpr std::int64_t kTokensMax = std::int64_t{1} << 24;
    if (profiles.empty()) {
        throw Error(ErrorKind::kRequest, "a plan needs at least one profile");
    }
    std::set<std::string> names;
    for (Profile const& profile : profiles) {
        auto const require = [&](bool holds, std::string const& problem) {
            if (!holds) {
                throw Error(ErrorKind::kRequest, "profile " + to_string(profile) + ": " + problem);
            }
        };
        require(profile.rows.ascends() && profile.length.ascends(),
                "its sizes must ascend from 1: smallest, usual, largest");
        require(profile.length.max <= length_max,
                "the model has " + std::to_string(length_max) + " positions");
        require(tokens_max(profile) <= kTokensMax,
                "its largest shape has more than " + std::to_string(kTokensMax) + " tokens");
        require(names.insert(profile.name).second, "another profile has the same name");
    }
}

/// Whether a batch of this shape may run with the profile.
inline bool covers(Profile const& profile, std::int32_t rows, std::int32_t length) {
    return profile.rows.has(rows) && profile.length.has(length);
}

/// The covering profile whose largest shape is smallest: its kernels fit best. Nothing when no
/// profile covers the shape.
inline std::optional<std::size_t> choose_profile(std::span<Profile const> profiles,
                                                 std::int32_t rows, std::int32_t length) {
    std::optional<std::size_t> best;
    for (std::size_t index = 0; index < profiles.size(); ++index) {
        bool const smaller = !best || tokens_max(profiles[index]) < tokens_max(profiles[*best]);
        if (covers(profiles[index], rows, length) && smaller) {
            best = index;
        }
    }
    return best;
}

}  // namespace duovec
