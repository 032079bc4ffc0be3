// A test program's few tools: TEST registers, CHECK counts, main runs all and reports; and a count
// of what the program allocates.
//
// Thread safety: one thread. A program is one translation unit, since this defines main.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace duovec::testing {

struct Case {
    char const* name;
    void (*body)();
};

inline std::vector<Case>& cases() {
    static std::vector<Case> all;
    return all;
}

inline int& failures() {
    static int count = 0;
    return count;
}

inline std::atomic<long> allocations = 0;

struct Registration {
    Registration(char const* name, void (*body)()) { cases().push_back({name, body}); }
};

inline void check(bool holds, char const* text, char const* file, int line) {
    if (!holds) {
        std::fprintf(stderr, "%s:%d: %s\n", file, line, text);
        ++failures();
    }
}

/// What `body` throws, or "" when it returns.
template <typename Body>
std::string thrown(Body const& body) {
    try {
        body();
    } catch (std::exception const& error) {
        return error.what();
    }
    return "";
}

inline bool contains(std::string const& text, std::string const& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace duovec::testing

extern "C" {
// The linker's --wrap=_Znwm sends every `new` of the program here, and none of the stand-ins'.
void* __real__Znwm(std::size_t bytes);
void* __wrap__Znwm(std::size_t bytes) {
    ++duovec::testing::allocations;
    return __real__Znwm(bytes);
}
}

#define TEST(name)                                                                   \
    static void name();                                                              \
    static duovec::testing::Registration const registration_of_##name{#name, &name}; \
    static void name()

#define CHECK(condition) duovec::testing::check((condition), #condition, __FILE__, __LINE__)

/// With an argument it ends after the first test that fails.
int main(int arguments, char**) {
    int failed = 0;
    for (duovec::testing::Case const& one : duovec::testing::cases()) {
        if (failed > 0 && arguments > 1) {
            return 1;
        }
        int const before = duovec::testing::failures();
        try {
            one.body();
        } catch (std::exception const& error) {
            std::fprintf(stderr, "%s: %s\n", one.name, error.what());
            ++duovec::testing::failures();
        }
        bool const passed = duovec::testing::failures() == before;
        failed += passed ? 0 : 1;
        std::printf("%s %s\n", passed ? "ok    " : "FAILED", one.name);
    }
    int const count = static_cast<int>(duovec::testing::cases().size());
    std::printf("%d passed, %d failed\n", count - failed, failed);
    return failed == 0 ? 0 : 1;
}
