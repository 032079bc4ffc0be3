#include "progress.h"

namespace duovec {
namespace {

/// Real nesting is about 6 deep; a bound keeps fraction() cheap whatever is announced.
constexpr std::size_t kPhasesMax = 16;

}  // namespace

void BuildProgress::start(std::string const& name, std::string const& parent, std::int32_t steps) {
    // Every phase lies behind its parent, so that fraction() ends.
    if (phases_.size() < kPhasesMax) {
        phases_.push_back({name, parent, std::max(1.0, static_cast<double>(steps)), 0.0});
    }
    update();
}

void BuildProgress::complete(std::string const& name, std::int32_t step) {
    for (BuildPhase& phase : phases_) {
        if (phase.name == name) {
            phase.done = std::max(phase.done, static_cast<double>(step) + 1.0);
        }
    }
    update();
}

void BuildProgress::finish(std::string const& name) {
    auto const is_it = [&](BuildPhase const& phase) { return phase.name == name; };
    auto const found = std::ranges::find_if(phases_, is_it);
    if (found == phases_.end()) {
        return;
    }
    bool const outermost = found == phases_.begin();
    phases_.erase(found);
    if (outermost && phases_.empty()) {
        permille_ = 1000;
    }
}

double BuildProgress::fraction(BuildPhase const& phase) const {
    double inner = 0.0;
    for (BuildPhase const& child : phases_) {
        if (&child > &phase && child.parent == phase.name) {
            inner = std::max(inner, fraction(child));
        }
    }
    return std::min(1.0, (phase.done + inner) / phase.steps);
}

void BuildProgress::update() {
    if (!phases_.empty()) {
        auto const now = static_cast<std::int32_t>(fraction(phases_.front()) * 1000.0);
        permille_ = std::clamp(now, permille_, 1000);
    }
}

}  // namespace duovec
