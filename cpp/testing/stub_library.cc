// A library that is almost TensorRT, for library_test.cc: STUB_VERSION is what it says it is;
// without it there is no function at all. Its builders and runtimes are what a real library without
// a driver gives instead of null.

#include <cstdint>

#ifdef STUB_VERSION
extern "C" {

std::int32_t getInferLibVersion() { return STUB_VERSION; }

std::int32_t getInferLibBuildVersion() { return 42; }

void* createInferBuilder_INTERNAL(void*, std::int32_t) { return nullptr; }

void* createInferRuntime_INTERNAL(void*, std::int32_t) {
    return reinterpret_cast<void*>(std::uintptr_t{0x228});
}

}  // extern "C"
#endif
