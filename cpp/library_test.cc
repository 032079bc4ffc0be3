#include "library.h"

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

TEST(the_headers_version_and_later_minor_ones_are_accepted) {
    CHECK(refusal("same").empty());
    CHECK(refusal("later_minor").empty());
    Library const library(stub("later_minor"));
    CHECK(library.version().major == NV_TENSORRT_MAJOR);
    CHECK(library.version().minor == NV_TENSORRT_MINOR + 1);
    CHECK(library.version().build == 42);
}

TEST(earlier_minor_and_other_major_versions_are_refused) {
    CHECK(contains(refusal("earlier_minor"), "this program needs"));
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
