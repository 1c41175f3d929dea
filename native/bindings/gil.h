// Letting go of the GIL and taking it back, safely at the interpreter's end.
//
// CPython 3.10 to 3.13 answer a thread that asks for the GIL while the interpreter ends with pthread_exit,
// which glibc carries out as a forced unwind. Neither destructors that are noexcept (nanobind's guards) nor
// nanobind's own catch (...) let that pass: the process would abort. So such a thread stays here, as
// CPython 3.14 makes it, until the process is gone.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace mooncake::bindings {

template <class Take>
void take_gil(Take take) {
    try {
        take();
    } catch (abi::__forced_unwind&) {
        for (;;) ::pause();  // leaving this block without going on with the unwind would abort
    }
}

// Runs without the GIL while it lives; for call_guard too.
class GilReleased {
  public:
    GilReleased() : state_(PyEval_SaveThread()) {}
    ~GilReleased() noexcept(false) {
        take_gil([this] { PyEval_RestoreThread(state_); });
    }
    GilReleased(const GilReleased&) = delete;
    GilReleased& operator=(const GilReleased&) = delete;

  private:
    PyThreadState* state_;
};

// Holds the GIL while it lives, on any thread.
class GilHeld {
  public:
    GilHeld() {
        take_gil([this] { state_ = PyGILState_Ensure(); });
    }
    ~GilHeld() { PyGILState_Release(state_); }
    GilHeld(const GilHeld&) = delete;
    GilHeld& operator=(const GilHeld&) = delete;

  private:
    PyGILState_STATE state_{};
};

}  // namespace mooncake::bindings
