// A library that is almost TensorRT, for library_test.cc: STUB_VERSION is what it says it is, with
// the minor version of a variable when there is one; without it there is no function at all. Its
// builders and runtimes are what a real library without a driver gives instead of null.

#include <cstdint>
#include <cstdlib>

#ifdef STUB_VERSION
extern "C" {

std::int32_t getInferLibVersion() {
    char const* const minor = std::getenv("DUOVEC_STUB_MINOR");
    int const number = STUB_VERSION;
    return minor == nullptr ? number : number / 10000 * 10000 + std::atoi(minor) * 100;
}

std::int32_t getInferLibBuildVersion() { return 42; }

void* createInferBuilder_INTERNAL(void*, std::int32_t) { return nullptr; }

void* createInferRuntime_INTERNAL(void*, std::int32_t) {
    return reinterpret_cast<void*>(std::uintptr_t{0x228});
}

}  // extern "C"
#endif
