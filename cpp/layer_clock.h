// What each layer of a plan takes, as TensorRT tells it.
//
// Thread safety: none; it belongs to the thread that runs the context. Ownership: none; it must
// outlive its time as the context's profiler. Preconditions: none.

#pragma once

#include <algorithm>
#include <vector>

#include "backend.h"
#include "flavour.h"

namespace duovec::DUOVEC_FLAVOUR {

/// Adds up what the library tells of each run.
class LayerClock final : public nvinfer1::IProfiler {
 public:
    void reportLayerTime(char const* name, float milliseconds) noexcept override {
        auto const same = [&](LayerTime const& layer) { return layer.name == name; };
        auto found = std::ranges::find_if(times_, same);
        if (found == times_.end()) {
            found = times_.insert(found, {name, 0});
        }
        found->microseconds += double(milliseconds) * 1e3;
    }

    std::vector<LayerTime> mean(int runs) const {
        std::vector<LayerTime> means = times_;
        for (LayerTime& layer : means) {
            layer.microseconds /= runs;
        }
        return means;
    }

 private:
    std::vector<LayerTime> times_;
};

}  // namespace duovec::DUOVEC_FLAVOUR
