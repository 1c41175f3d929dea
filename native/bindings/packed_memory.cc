// _core.PackedMemory: the memory of a batch, packed in one turn before the call that puts from it or reads
// into it; to Python a sequence of (address, length).
#include "bindings/bindings.h"
#include "bindings/client_arguments.h"

namespace mooncake::bindings {

using namespace nanobind::literals;

void bind_packed_memory(nb::module_& module) {
    nb::class_<PackedMemory>(module, "PackedMemory")
        .def_static("of_values", &PackedMemory::of_values, "values"_a)
        .def_static("of_targets", &PackedMemory::of_targets, "targets"_a)
        .def_static("of_addresses", &PackedMemory::of_addresses, "addresses"_a, "sizes"_a)
        .def("__len__", [](const PackedMemory& self) { return self.pieces().size(); })
        .def("__getitem__",
             [](const PackedMemory& self, std::size_t index) {
                 if (index >= self.pieces().size()) throw nb::index_error();
                 const auto& piece = self.pieces()[index];
                 return nb::make_tuple(reinterpret_cast<std::uintptr_t>(piece.iov_base), piece.iov_len);
             })
        .def_prop_ro("size_bytes", [](const PackedMemory& self) {
            std::uint64_t bytes = 0;
            for (const auto& piece : self.pieces()) bytes += piece.iov_len;
            return bytes;
        });
}

}  // namespace mooncake::bindings
