// The scripted faults of the stand-ins.
//
// Thread safety: none; who shares them guards them. Ownership: none. Preconditions: a name that is
// not known aborts.

#pragma once

#include <map>
#include <optional>
#include <string>

namespace duovec::standin {

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

}  // namespace duovec::standin
