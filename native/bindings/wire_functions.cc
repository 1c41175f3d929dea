// Checksums and digests of the wire contract, for tools and tests in Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "bindings/bindings.h"
#include "bindings/buffer.h"
#include "bindings/gil.h"
#include "wire/crc32c.h"
#include "wire/digest.h"

namespace nb = nanobind;

namespace mooncake::bindings {
namespace {

/// From here on other Python threads may run meanwhile; below, letting go of the GIL costs more than the
/// work.
constexpr size_t kReleaseGilBytes = size_t{16} << 10;

template <typename Work>
auto compute(size_t size, const Work& work) {
    std::optional<GilReleased> released;
    if (size >= kReleaseGilBytes) released.emplace();
    return work();
}

uint32_t crc32c(nb::handle data, uint32_t crc) {
    const BorrowedBuffer bytes(data, BorrowedBuffer::Access::kRead);
    return compute(bytes.size(), [&] { return wire::crc32c(crc, bytes.data(), bytes.size()); });
}

uint32_t crc32c_copy(nb::handle destination, nb::handle source, uint32_t crc) {
    const BorrowedBuffer to(destination, BorrowedBuffer::Access::kWrite);
    const BorrowedBuffer from(source, BorrowedBuffer::Access::kRead);
    if (to.size() != from.size()) {
        throw nb::value_error(("the destination has " + std::to_string(to.size()) + " bytes, the source " +
                               std::to_string(from.size()))
                                  .c_str());
    }
    return compute(to.size(),
                   [&] { return wire::crc32c_copy(crc, to.writable(), from.data(), from.size()); });
}

const wire::Crc32cImplementation& find_implementation(std::string_view name) {
    for (const wire::Crc32cImplementation& known : wire::crc32c_implementations()) {
        if (known.name == name) return known;
    }
    throw nb::value_error(("this processor has no CRC-32C implementation " + std::string(name)).c_str());
}

uint32_t crc32c_by(std::string_view name, nb::handle data, uint32_t crc) {
    const auto update = find_implementation(name).update;
    const BorrowedBuffer bytes(data, BorrowedBuffer::Access::kRead);
    return compute(bytes.size(), [&] { return ~update(~crc, bytes.data(), bytes.size()); });
}

nb::tuple crc32c_copy_by(std::string_view name, nb::handle source, uint32_t crc) {
    const auto copy = find_implementation(name).copy;
    const BorrowedBuffer from(source, BorrowedBuffer::Access::kRead);
    std::string copied(from.size(), '\0');
    auto* const to = reinterpret_cast<uint8_t*>(copied.data());
    const uint32_t sum = compute(from.size(), [&] { return ~copy(~crc, to, from.data(), from.size()); });
    return nb::make_tuple(sum, nb::bytes(copied.data(), copied.size()));
}

nb::list crc32c_implementations() {
    nb::list names;
    for (const wire::Crc32cImplementation& known : wire::crc32c_implementations()) {
        names.append(nb::str(known.name.data(), known.name.size()));
    }
    return names;
}

uint64_t xxh64(nb::handle data, uint64_t seed) {
    const BorrowedBuffer bytes(data, BorrowedBuffer::Access::kRead);
    return compute(bytes.size(), [&] { return wire::xxh64(bytes.data(), bytes.size(), seed); });
}

uint64_t key_digest(std::string_view tenant, nb::bytes key) {
    return wire::key_digest(tenant, std::string_view(key.c_str(), key.size()));
}

}  // namespace

void bind_wire_functions(nb::module_& module) {
    using namespace nb::literals;
    module.def("crc32c", crc32c, "data"_a, "crc"_a = 0, "Continue a CRC-32C over data.");
    module.def("crc32c_combine", wire::crc32c_combine, "crc_a"_a, "crc_b"_a, "length_b"_a,
               "The CRC-32C of a + b from those of a and b and b's length.");
    module.def("crc32c_copy", crc32c_copy, "destination"_a, "source"_a, "crc"_a = 0,
               "Copy source into destination, of the same size, and continue a CRC-32C over it.");
    module.def("crc32c_implementations", crc32c_implementations,
               "What this processor can run, slowest first; the last one is used.");
    module.def("crc32c_by", crc32c_by, "implementation"_a, "data"_a, "crc"_a = 0,
               "crc32c() by a named implementation.");
    module.def("crc32c_copy_by", crc32c_copy_by, "implementation"_a, "source"_a, "crc"_a = 0,
               "crc32c_copy() by a named implementation; returns the checksum and the copy.");
    module.def("xxh64", xxh64, "data"_a, "seed"_a = 0, "xxHash64 of data.");
    module.def("key_digest", key_digest, "tenant"_a, "key"_a,
               "The 64 bits that name (tenant, key) on the wire: xxh64(key, seed=xxh64(tenant)).");
}

}  // namespace mooncake::bindings
