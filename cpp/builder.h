// From an ONNX graph to a plan, with every check that can be made without a GPU.
//
// Thread safety: any thread may ask; builds of a flavour run one after the other, since the library
// has one log. The observer is told from the library's threads. Ownership: the plan owns its bytes
// and keeps the library. Preconditions: the observer and the request's timing cache outlive the
// call.

#pragma once

#include <memory>

#include "library.h"

namespace duovec::DUOVEC_FLAVOUR {

/// Throws Error: kRequest for profiles or capabilities that cannot be, kModel for a graph that
/// cannot be read or is not the manifest's, kOutOfMemory, kCancelled when the observer said so.
std::unique_ptr<Plan> build_plan(std::shared_ptr<Library const> library,
                                 BuildRequest const& request, BuildObserver& observer);

}  // namespace duovec::DUOVEC_FLAVOUR
