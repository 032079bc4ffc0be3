// The most arithmetic that the library gets out of a GPU: a chain of large half-precision matrix
// products, which nothing of an encoder can beat. What a plan reaches is told as a part of it.
//
// Thread safety: any thread may ask. Ownership: everything is freed at the end. Preconditions: the
// device has no other work, or the figure is too low.

#pragma once

#include <memory>

#include "library.h"

namespace duovec::DUOVEC_FLAVOUR {

/// Floating-point operations a second. Throws Error as Backend::load does.
double tensor_ceiling(Library const& library, std::int32_t device, std::string const& cuda_file);

}  // namespace duovec::DUOVEC_FLAVOUR
