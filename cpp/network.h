// What a parsed graph is, and whether it is the one the manifest describes.
//
// TensorRT builds a plan from almost anything: an empty file, wrong input names, lengths over the
// table of positions. All of that is refused here, before the build.
//
// Thread safety: free functions; a network is used by one thread. Ownership: none is taken.
// Preconditions: the network was parsed without errors.

#pragma once

#include <string>

#include "flavour.h"

namespace duovec::DUOVEC_FLAVOUR {

struct NetworkFacts {
    /// "f32", "f16", "bf16", "fp8" or "mixed": of the matrix products.
    std::string precision;
    /// Rows of the table in which `positions` are looked up, 0 when none was found.
    std::int32_t position_rows = 0;
    std::int32_t attentions = 0;
    /// Of one attention.
    std::int32_t heads = 0;
};

/// Throws Error(kModel) that says what differs from the request: no layers, names, types, ranks,
/// fixed sizes, vocabulary, positions.
NetworkFacts check_network(nvinfer1::INetworkDefinition const& network,
                           BuildRequest const& request);

}  // namespace duovec::DUOVEC_FLAVOUR
