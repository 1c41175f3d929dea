// The whole of our native test framework: TEST(name) { CHECK(condition); CHECK_EQUAL(a, b); } in files named
// *_test.cc, each an executable that runs all its tests, or those whose names contain an argument.
//
// Knows nothing of what is tested. A failed check ends the process at once: what comes after could not be
// trusted, and a sanitizer's report of it would only mislead.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace check {

struct Test {
    const char* name;
    std::function<void()> body;
};

inline std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

struct Registration {
    Registration(const char* name, std::function<void()> body) { tests().push_back({name, std::move(body)}); }
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
    std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
    std::fflush(stderr);
    std::_Exit(1);
}

template <class A, class B>
void equal(const char* file, int line, const char* text, const A& a, const B& b) {
    if (a == b) return;
    std::ostringstream out;
    out << text << ": " << a << " and " << b;
    fail(file, line, out.str());
}

inline int run(int argc, char** argv) {
    int count = 0;
    for (const Test& test : tests()) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; ++i) wanted |= std::strstr(test.name, argv[i]) != nullptr;
        if (!wanted) continue;
        std::printf("%s\n", test.name);
        std::fflush(stdout);
        test.body();
        ++count;
    }
    std::printf("%d passed\n", count);
    return count > 0 ? 0 : 1;
}

}  // namespace check

#define TEST(name)                                                        \
    static void name();                                                   \
    static const check::Registration registration_of_##name(#name, name); \
    static void name()
#define CHECK(condition) \
    ((condition) ? static_cast<void>(0) : check::fail(__FILE__, __LINE__, "not true: " #condition))
#define CHECK_EQUAL(a, b) check::equal(__FILE__, __LINE__, #a " == " #b, a, b)
