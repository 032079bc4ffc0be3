// A test program's few tools: TEST registers, CHECK counts, main runs all and reports.
//
// Thread safety: one thread. Include it in exactly one file of a program; it defines main.

#pragma once

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

#define TEST(name)                                                                   \
    static void name();                                                              \
    static duovec::testing::Registration const registration_of_##name{#name, &name}; \
    static void name()

#define CHECK(condition) duovec::testing::check((condition), #condition, __FILE__, __LINE__)

int main() {
    int failed = 0;
    for (duovec::testing::Case const& one : duovec::testing::cases()) {
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
