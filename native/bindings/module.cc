// The module _core: calls every bind function of bindings.h. Holds nothing else.
#include "bindings/bindings.h"

NB_MODULE(_core, module) {
    // A daemon thread that is in a call when the interpreter ends holds its objects for good; that is no leak
    // to report.
    nanobind::set_leak_warnings(false);
    module.doc() = "Native core of mooncake_store.";
    module.def(
        "version", [] { return MOONCAKE_VERSION; },
        "Version of the distribution this module was built from.");
    mooncake::bindings::bind_range_allocator(module);
    mooncake::bindings::bind_wire_functions(module);
    mooncake::bindings::bind_metadata(module);
    mooncake::bindings::bind_buffer_handle(module);
    mooncake::bindings::bind_packed_memory(module);
    mooncake::bindings::bind_view(module);
    mooncake::bindings::bind_why_not_mapped(module);
    mooncake::bindings::bind_client(module);
    mooncake::bindings::bind_async_client(module);
    mooncake::bindings::bind_wire_messages(module);
    mooncake::bindings::bind_wire_object_messages(module);
    mooncake::bindings::bind_wire_tasks(module);
    mooncake::bindings::bind_wire_inspect(module);
    mooncake::bindings::bind_replay(module);
    mooncake::bindings::bind_directory(module);
    mooncake::bindings::bind_master(module);
    mooncake::bindings::bind_node(module);
    mooncake::bindings::bind_transfer_engine(module);
}
