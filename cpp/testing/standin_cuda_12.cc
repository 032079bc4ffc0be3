// libcudart.so.12 as the stand-in for CUDA 12: its functions are those of the stand-in for CUDA 13,
// which it is linked to, and loading it makes that one say that it is the older.

#include "testing/standin.h"

namespace {

constexpr long kVersion = 12000;

[[maybe_unused]] bool const loaded = [] {
    duovec_standin_runtime_version(kVersion);
    return true;
}();

}  // namespace
