#include "testing/standin_faults.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "testing/standin.h"

namespace duovec::standin {
namespace {

/// Its names, and whether each needs a number. Not an object that the end of the process destroys:
/// streams may still run then.
constexpr std::pair<std::string_view, bool> kFaults[] = {{"no_device", false},
                                                         {"no_driver", false},
                                                         {"driver_version", true},
                                                         {"malloc_fails", false},
                                                         {"malloc_fails_over", true},
                                                         {"host_alloc_fails", false},
                                                         {"stream_fails", false},
                                                         {"enqueue_fails", true},
                                                         {"enqueue_fails_late", true},
                                                         {"launch_fails", true},
                                                         {"copy_fails", true},
                                                         {"sticky", true},
                                                         {"capture_fails", false},
                                                         {"capture_enqueue_fails", false},
                                                         {"instantiate_fails", false},
                                                         {"runtime_0x228", false},
                                                         {"version", true},
                                                         {"deserialize_fails", false},
                                                         {"context_fails", false},
                                                         {"context_refused", false},
                                                         {"build_fails", false},
                                                         {"unsupported_device", false},
                                                         {"suboptimal_plan", false},
                                                         {"lazy_kernels_round", false},
                                                         {"capability", true},
                                                         {"run_us", true},
                                                         {"other_us", true},
                                                         {"enqueue_us", true},
                                                         {"launch_us", true},
                                                         {"hang", true},
                                                         {"mixes_rows", false},
                                                         {"mixes_texts", false},
                                                         {"nan", true}};

/// Whether the fault needs a number; nothing when there is no such fault.
std::optional<bool> needs_number(std::string_view name) {
    auto const* const found =
        std::ranges::find(kFaults, name, [](auto const& fault) { return fault.first; });
    return found == std::end(kFaults) ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::string Faults::of_environment() {
    char const* const spec = std::getenv("DUOVEC_STANDIN_FAULTS");
    return spec == nullptr ? "" : spec;
}

void Faults::add(std::string const& spec) {
    if (spec.empty()) {
        values_.clear();
    }
    for (std::size_t start = 0; start < spec.size();) {
        std::size_t const end = std::min(spec.find(',', start), spec.size());
        add_one(spec.substr(start, end - start));
        start = end + 1;
    }
}

void Faults::add_one(std::string const& text) {
    std::size_t const equals = std::min(text.find('='), text.size());
    std::string const name = text.substr(0, equals);
    bool const numbered = equals < text.size();
    long number = 1;
    char const* const end = text.data() + text.size();
    bool const read =
        !numbered || std::from_chars(text.data() + equals + 1, end, number).ptr == end;
    if (needs_number(name) != numbered || !read || number < 0) {
        contract("unknown fault '" + text + "'");
    }
    values_[name] = number;
}

std::optional<long> Faults::find(std::string const& name) const {
    if (!needs_number(name)) {
        contract("unknown fault '" + name + "'");
    }
    auto const found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
}

bool Faults::fires(std::string const& name) {
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
