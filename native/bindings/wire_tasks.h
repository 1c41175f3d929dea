// A task as a dict of Python's: the same from the packed answer and from a client.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "wire/tasks.h"

namespace mooncake::bindings {

nanobind::dict task_dict(const wire::TaskRecord& record, std::string_view message);

}  // namespace mooncake::bindings
