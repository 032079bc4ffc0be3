// One rising number out of the nested phases a build announces. Pure.
//
// Thread safety: none, the caller holds a lock. Ownership: it owns its strings.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace duovec {

class BuildProgress {
 public:
    /// A phase of `steps` steps began inside `parent`, which is empty for the outermost.
    void start(std::string const& name, std::string const& parent, std::int32_t steps);
    /// Step number `step`, counted from 0, is done.
    void complete(std::string const& name, std::int32_t step);
    void finish(std::string const& name);

    /// Of the whole, 0 to 1000; never less than before.
    std::int32_t permille() const { return permille_; }

 private:
    struct BuildPhase {
        std::string name;
        std::string parent;
        double steps;
        double done;
    };

    double fraction(BuildPhase const& phase) const;
    void update();

    std::vector<BuildPhase> phases_;
    std::int32_t permille_ = 0;
};

}  // namespace duovec
