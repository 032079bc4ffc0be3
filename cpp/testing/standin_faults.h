// The scripted faults of the stand-ins.
//
// Thread safety: none; who shares them guards them. Ownership: none. Preconditions: a name that is
// not known aborts.

#pragma once

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "testing/standin.h"

namespace duovec::standin {

// Faults that are set or not, and those with a number. Not objects that the end of the process
// destroys: streams may still run then.
constexpr std::string_view kSwitches[] = {
    "no_device",          "no_driver",         "host_alloc_fails",
    "stream_fails",       "capture_fails",     "capture_enqueue_fails",
    "instantiate_fails",  "runtime_0x228",     "deserialize_fails",
    "context_fails",      "context_refused",   "build_fails",
    "unsupported_device", "suboptimal_plan",   "mixes_rows",
    "mixes_texts",        "longest_is_wrong",  "unlike_devices",
    "adds_up_anyhow",     "deserialize_warns", "deserialize_errs",
    "aborts_at_exit"};
constexpr std::string_view kNumbers[] = {"driver_version", "malloc_fails_over",
                                         "enqueue_fails",  "enqueue_fails_late",
                                         "launch_fails",   "copy_fails",
                                         "sticky",         "version",
                                         "capability",     "run_us",
                                         "other_us",       "enqueue_us",
                                         "launch_us",      "nan",
                                         "sick_device",    "ignores_after",
                                         "context_us",     "context_bytes",
                                         "garbles_after",  "nan_after"};

inline bool is_in(std::span<std::string_view const> names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

/// Scripted faults by name. A number is a value or what is left of a countdown.
class Faults {
 public:
    /// What the process's environment names.
    static std::string of_environment();

    /// An empty text clears all.
    void add(std::string const& spec);
    std::optional<long> find(std::string const& name) const;
    /// Counts down; true for the call that ends it.
    bool fires(std::string const& name);

 private:
    void add_one(std::string const& text);

    std::map<std::string, long> values_;
};

inline std::string Faults::of_environment() {
    char const* const spec = std::getenv("DUOVEC_STANDIN_FAULTS");
    return spec == nullptr ? "" : spec;
}

inline void Faults::add(std::string const& spec) {
    if (spec.empty()) {
        values_.clear();
    }
    for (std::size_t start = 0; start < spec.size();) {
        std::size_t const end = std::min(spec.find(',', start), spec.size());
        add_one(spec.substr(start, end - start));
        start = end + 1;
    }
}

inline void Faults::add_one(std::string const& text) {
    std::size_t const equals = std::min(text.find('='), text.size());
    std::string const name = text.substr(0, equals);
    long number = 1;
    char const* const end = text.data() + text.size();
    bool const known = equals == text.size()
                           ? is_in(kSwitches, name)
                           : is_in(kNumbers, name) &&
                                 std::from_chars(text.data() + equals + 1, end, number).ptr == end;
    if (!known || number < 0) {
        contract("unknown fault '" + text + "'");
    }
    values_[name] = number;
}

inline std::optional<long> Faults::find(std::string const& name) const {
    if (!is_in(kSwitches, name) && !is_in(kNumbers, name)) {
        contract("unknown fault '" + name + "'");
    }
    auto const found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
}

inline bool Faults::fires(std::string const& name) {
    if (!find(name)) {
        return false;
    }
    bool const now = --values_[name] <= 0;
    if (now) {
        values_.erase(name);
    }
    return now;
}

}  // namespace duovec::standin
