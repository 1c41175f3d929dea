// A failed system call as Python's OSError, with its errno.
#pragma once

#include <nanobind/nanobind.h>

#include <system_error>

namespace mooncake::bindings {

/// With the GIL held.
[[noreturn]] inline void raise_os_error(const std::system_error& error) {
    PyErr_SetObject(PyExc_OSError, nanobind::make_tuple(error.code().value(), error.what()).ptr());
    throw nanobind::python_error();
}

}  // namespace mooncake::bindings
