// Shapes and optimization profiles: what a plan is built for, and which profile runs a batch. Pure.
//
// Thread safety: values and free functions without state. Ownership: none.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace duovec {

/// Smallest, most frequent and largest size of one axis.
struct Range {
    std::int32_t min = 1;
    std::int32_t opt = 1;
    std::int32_t max = 1;

    bool operator==(Range const&) const = default;
};

/// Shapes [rows, length] that one optimization profile covers.
struct Profile {
    std::string name;
    Range rows;
    Range length;

    bool operator==(Profile const&) const = default;
};

/// Throws Error(kRequest) unless every range ascends from at least 1, no length is over
/// `length_max`, no product of the largest sizes overflows, and the names differ.
/// TensorRT itself accepts min > opt and lengths over the position table.
void check_profiles(std::span<Profile const> profiles, std::int32_t length_max);

/// Whether a batch of this shape may run with the profile.
bool covers(Profile const& profile, std::int32_t rows, std::int32_t length);

/// The covering profile whose largest shape is smallest: its kernels fit best. Nothing when no
/// profile covers the shape.
std::optional<std::size_t> choose_profile(std::span<Profile const> profiles, std::int32_t rows,
                                          std::int32_t length);

/// Tokens of the largest shape.
std::int64_t tokens_max(Profile const& profile);

/// "latency=1x1:4x64:8x128".
std::string to_string(Profile const& profile);

}  // namespace duovec
