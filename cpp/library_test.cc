#include "library.h"

#include <cstdlib>
#include <string>

#include "diagnostics.h"
#include "testing/check.h"

using duovec::DUOVEC_FLAVOUR::kRuntimeFile;
using duovec::DUOVEC_FLAVOUR::Library;
using duovec::DUOVEC_FLAVOUR::logger;
using duovec::testing::contains;
using duovec::testing::thrown;

namespace {

/// Folders of stub libraries, which scripts/test_tensorrt.sh makes: one for each version.
std::string stub(char const* name) { return std::string(DUOVEC_TEST_STUBS) + "/" + name; }

std::string refusal(char const* name) {
    return thrown([&] { Library const library(stub(name)); });
}

}  // namespace

TEST(versions_that_the_headers_are_right_for_are_accepted) {
    using duovec::DUOVEC_FLAVOUR::kNewestMinor;
    using duovec::DUOVEC_FLAVOUR::kOldestMinor;
    for (std::int32_t minor = 0; minor <= 100; ++minor) {
        setenv("DUOVEC_STUB_MINOR", std::to_string(minor).c_str(), 1);
        bool const known = minor >= kOldestMinor && minor <= kNewestMinor;
        CHECK(refusal("same").empty() == known);
        CHECK(known || contains(refusal("same"), "this program needs"));
    }
    unsetenv("DUOVEC_STUB_MINOR");
    Library const library(stub("same"));
    CHECK(library.version().major == NV_TENSORRT_MAJOR);
    CHECK(library.version().minor == NV_TENSORRT_MINOR);
    CHECK(library.version().build == 42);
}

TEST(other_major_versions_are_refused) {
    CHECK(contains(refusal("later_major"), "this program needs"));
}

TEST(missing_and_foreign_libraries_are_named) {
    CHECK(contains(refusal("absent"), std::string("cannot open ") + stub("absent")));
    CHECK(contains(refusal("absent"), kRuntimeFile));
    CHECK(contains(refusal("foreign"), "no function getInferLibVersion"));
}

TEST(null_and_impossible_pointers_are_no_objects) {
    Library const library(stub("same"));
    CHECK(contains(thrown([&] { library.create_builder(logger()); }), "gives no builder"));
    CHECK(contains(thrown([&] { library.create_runtime(logger()); }), "gives no runtime"));
}
