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
    void start(std::string const& name, std::string const& parent, std::int32_t steps) {
        // Every phase lies behind its parent, so that fraction() ends.
        if (phases_.size() < kPhasesMax) {
            phases_.push_back({name, parent, std::max(1.0, static_cast<double>(steps)), 0.0});
        }
        update();
    }

    /// Step number `step`, counted from 0, is done.
    void complete(std::string const& name, std::int32_t step) {
        for (BuildPhase& phase : phases_) {
            if (phase.name == name) {
                phase.done = std::max(phase.done, static_cast<double>(step) + 1.0);
            }
        }
        update();
    }

    void finish(std::string const& name) {
        auto const found = std::ranges::find(phases_, name, &BuildPhase::name);
        if (found == phases_.end()) {
            return;
        }
        bool const outermost = found == phases_.begin();
        phases_.erase(found);
        if (outermost && phases_.empty()) {
            permille_ = 1000;
        }
    }

    /// Of the whole, 0 to 1000; never less than before.
    std::int32_t permille() const { return permille_; }

 private:
    /// Real nesting is about 6 deep; a bound keeps fraction() cheap whatever is announced.
    static constexpr std::size_t kPhasesMax = 16;

    struct BuildPhase {
        std::string name;
        std::string parent;
        double steps;
        double done;
    };

    double fraction(BuildPhase const& phase) const {
        double inner = 0.0;
        for (BuildPhase const& child : phases_) {
            if (&child > &phase && child.parent == phase.name) {
                inner = std::max(inner, fraction(child));
            }
        }
        return std::min(1.0, (phase.done + inner) / phase.steps);
    }

    void update() {
        if (!phases_.empty()) {
            auto const now = static_cast<std::int32_t>(fraction(phases_.front()) * 1000.0);
            permille_ = std::clamp(now, permille_, 1000);
        }
    }

    std::vector<BuildPhase> phases_;
    std::int32_t permille_ = 0;
};

}  // namespace duovec
