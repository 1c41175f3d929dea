// The list of everything that _core exposes: `void bind_<class>(nanobind::module_& module);` for each file
// of this folder, called by module.cc. Owns no behaviour. Nothing outside native/bindings may know Python.
#pragma once

#include <nanobind/nanobind.h>

namespace mooncake::bindings {

void bind_transfer_engine(nanobind::module_& module);
void bind_node(nanobind::module_& module);
void bind_directory(nanobind::module_& module);
void bind_range_allocator(nanobind::module_& module);
void bind_wire_functions(nanobind::module_& module);
void bind_metadata(nanobind::module_& module);
void bind_packed_memory(nanobind::module_& module);
void bind_client(nanobind::module_& module);
void bind_buffer_handle(nanobind::module_& module);
void bind_view(nanobind::module_& module);
void bind_why_not_mapped(nanobind::module_& module);
void bind_async_client(nanobind::module_& module);
void bind_wire_messages(nanobind::module_& module);
void bind_wire_object_messages(nanobind::module_& module);
void bind_wire_inspect(nanobind::module_& module);
void bind_wire_tasks(nanobind::module_& module);
void bind_replay(nanobind::module_& module);
void bind_master(nanobind::module_& module);

}  // namespace mooncake::bindings
