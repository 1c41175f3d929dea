// Letting go of the GIL and taking it back, safely at the interpreter's end.
//
// CPython 3.10 to 3.13 answer a thread that asks for the GIL while the interpreter ends with pthread_exit,
// which glibc carries out as a forced unwind. Neither destructors that are noexcept (nanobind's guards) nor
// nanobind's own catch (...) let that pass: the process would abort. So such a thread stays in take_gil, as
// CPython 3.14 makes it, until the process is gone.
//
// A cleanup handler of pthreads keeps it there, not a catch of __forced_unwind: glibc unwinds with libgcc,
// and in a wheel the C++ runtime that would catch is another (zig's, linked statically), which cannot read
// libgcc's frames. Without exceptions the handler is a jump, and gil.cc has no frame for either to read.
#pragma once

#include <Python.h>

namespace mooncake::bindings {

void take_gil(PyThreadState* state);
void take_gil(PyGILState_STATE& state);

// Runs without the GIL while it lives; for call_guard too.
class GilReleased {
  public:
    GilReleased() : state_(PyEval_SaveThread()) {}
    ~GilReleased() { take_gil(state_); }
    GilReleased(const GilReleased&) = delete;
    GilReleased& operator=(const GilReleased&) = delete;

  private:
    PyThreadState* state_;
};

// Holds the GIL while it lives, on any thread.
class GilHeld {
  public:
    GilHeld() { take_gil(state_); }
    ~GilHeld() { PyGILState_Release(state_); }
    GilHeld(const GilHeld&) = delete;
    GilHeld& operator=(const GilHeld&) = delete;

  private:
    PyGILState_STATE state_{};
};

}  // namespace mooncake::bindings
