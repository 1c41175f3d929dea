// _core.PackedMemory: the memory of a batch, packed in one turn before the call that puts from it or reads
// into it; to Python a sequence of (address, length).
#include "bindings/bindings.h"
#include "bindings/client_arguments.h"
#include "net/iovecs.h"

namespace mooncake::bindings {

using namespace nanobind::literals;

namespace {

std::span<const iovec> checked(const PackedMemory& packed, std::size_t index) {
    if (index >= packed.size()) throw nb::index_error();
    return packed[index];
}

nb::object entry(const PackedMemory& packed, std::size_t index) {
    nb::list pieces;
    for (const auto& piece : checked(packed, index)) {
        pieces.append(nb::make_tuple(reinterpret_cast<std::uintptr_t>(piece.iov_base), piece.iov_len));
    }
    if (nb::len(pieces) == 1) return pieces[0];
    return pieces;
}

}  // namespace

void bind_packed_memory(nb::module_& module) {
    nb::class_<PackedMemory>(module, "PackedMemory")
        .def_static("of_values", &PackedMemory::of_values, "values"_a)
        .def_static("of_targets", &PackedMemory::of_targets, "targets"_a)
        .def_static("of_addresses", &PackedMemory::of_addresses, "addresses"_a, "sizes"_a)
        .def_static("of_pieces", &PackedMemory::of_pieces, "all_addresses"_a, "all_sizes"_a)
        .def("__len__", &PackedMemory::size)
        .def("__getitem__", &entry, "index"_a)
        .def(
            "size_of",
            [](const PackedMemory& self, std::size_t index) {
                return net::total_bytes(checked(self, index));
            },
            "index"_a)
        .def_prop_ro("size_bytes", [](const PackedMemory& self) {
            std::uint64_t bytes = 0;
            for (std::size_t i = 0; i < self.size(); ++i) bytes += net::total_bytes(self[i]);
            return bytes;
        });
}

}  // namespace mooncake::bindings
