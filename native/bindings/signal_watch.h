// Ctrl-C for calls that wait without the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bindings/gil.h"

namespace mooncake::bindings {

// Asked by a waiting call every now and then: true once Python's handler of a signal raised, and from then
// on. What it raised is raised again where the call ends (nanobind::python_error).
class SignalWatch {
  public:
    bool operator()() {
        if (arrived_) return true;
        if (::syscall(SYS_gettid) != ::getpid())
            return false;  // Python handles signals on the main thread alone
        const GilHeld held;
        arrived_ = PyErr_CheckSignals() != 0;
        return arrived_;
    }
    bool has_arrived() const { return arrived_; }

  private:
    bool arrived_ = false;
};

}  // namespace mooncake::bindings
