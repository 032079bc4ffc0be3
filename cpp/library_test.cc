// Opening libraries: the stand-ins say of which version they are.

#include "library.h"

#include <unistd.h>

#include <filesystem>

#include "testing/session_rig.h"

using duovec::EngineRequest;
using duovec::ErrorKind;
using duovec::DUOVEC_FLAVOUR::kNewestMinor;
using duovec::DUOVEC_FLAVOUR::kOldestMinor;
using duovec::DUOVEC_FLAVOUR::kRuntimeFile;
using namespace duovec::testing;

namespace {

std::string refusal_of(std::string const& folder) {
    return thrown([&] { Library const library(folder); });
}

std::string refusal_of(std::int32_t major, std::int32_t minor) {
    ScopedFaults const faults("version=" + std::to_string(major * 10000 + minor * 100));
    return refusal_of(standins());
}

}  // namespace

TEST(versions_that_the_headers_are_right_for_are_accepted) {
    for (std::int32_t minor = 0; minor < 100; ++minor) {
        bool const known = minor >= kOldestMinor && minor <= kNewestMinor;
        std::string const said = refusal_of(NV_TENSORRT_MAJOR, minor);
        CHECK(known ? said.empty() : contains(said, "this program needs"));
    }
    duovec::Version const version = open_library()->version();
    CHECK(version.major == NV_TENSORRT_MAJOR && version.minor == NV_TENSORRT_MINOR);
    CHECK(version.build == NV_TENSORRT_BUILD);
}

TEST(other_major_versions_are_refused) {
    CHECK(contains(refusal_of(NV_TENSORRT_MAJOR + 1, kOldestMinor), "this program needs"));
}

TEST(missing_and_foreign_libraries_are_named) {
    std::string const folder = standins() + "/foreign-" + std::to_string(getpid());
    std::string const file = folder + "/" + kRuntimeFile;
    std::filesystem::create_directory(folder);
    CHECK(contains(refusal_of(folder), "cannot open " + file));
    std::filesystem::create_symlink("../libcudart.so.13", file);
    CHECK(contains(refusal_of(folder), "no function getInferLibVersion"));
    std::filesystem::remove_all(folder);
}

TEST(nothing_is_left_behind) { CHECK(live() == 0); }

TEST(without_driver_or_device_it_says_so) {
    for (char const* const spec : {"no_device", "no_driver"}) {
        ScopedFaults const faults(spec);
        CHECK(failed_with(failure([] { load(); }), ErrorKind::kDevice, "cannot count the GPUs"));
    }
    {
        ScopedFaults const faults("runtime_0x228");
        CHECK(failed_with(failure([] { load(); }), ErrorKind::kDevice, "gives no runtime"));
    }
    std::string const text = PlanText{}.text();
    EngineRequest third = request(text);
    third.device = 2;
    auto const library = open_library();
    auto const error = failure([&] { LoadedEngine(library, third); });
    CHECK(failed_with(error, ErrorKind::kDevice, "there is no GPU 2: the driver shows 2"));
    third.cuda_file = "/nonexistent/libcudart.so.13";
    auto const missing = failure([&] { LoadedEngine(library, third); });
    CHECK(failed_with(missing, ErrorKind::kLibrary, "cannot open /nonexistent/libcudart.so.13"));
}
