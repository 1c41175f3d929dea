// RangeAllocator, for tests and simulations in Python.
#include "node/core/range_allocator.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <string>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace mooncake::bindings {
namespace {

using node::Range;
using node::RangeAllocator;

/// The native side asserts; a Python caller gets an exception instead of a stopped process.
void require_held(const RangeAllocator& allocator, Range range) {
    if (allocator.holds(range)) return;
    throw nb::value_error(("the range at offset " + std::to_string(range.offset) + " (record " +
                           std::to_string(range.record) + ") is not in use")
                              .c_str());
}

}  // namespace

void bind_range_allocator(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<Range>(module, "Range", "A range in use.")
        .def(
            "__init__",
            [](Range* self, uint64_t offset, uint32_t record) {
                new (self) Range{.offset = offset, .record = record};
            },
            "offset"_a, "record"_a)
        .def_ro("offset", &Range::offset)
        .def_ro("record", &Range::record)
        .def("__repr__", [](const Range& range) {
            return "Range(offset=" + std::to_string(range.offset) +
                   ", record=" + std::to_string(range.record) + ")";
        });

    nb::class_<RangeAllocator>(module, "RangeAllocator", "The ranges of one segment.")
        .def(
            "__init__",
            [](RangeAllocator* self, uint64_t capacity, uint64_t alignment,
               std::optional<uint64_t> ready_bytes) {
                new (self) RangeAllocator(capacity, alignment, ready_bytes.value_or(capacity));
            },
            "capacity"_a, "alignment"_a = 64, nb::kw_only(), "ready_bytes"_a = nb::none())
        .def("allocate", &RangeAllocator::allocate, "size"_a)
        .def(
            "free",
            [](RangeAllocator& self, Range range) {
                require_held(self, range);
                self.free(range);
            },
            "range"_a)
        .def("set_ready", &RangeAllocator::set_ready, "ready_bytes"_a)
        .def("charged_bytes", &RangeAllocator::charged_bytes, "size"_a)
        .def("holds", &RangeAllocator::holds, "range"_a)
        .def(
            "size_of",
            [](const RangeAllocator& self, Range range) {
                require_held(self, range);
                return self.size_of(range);
            },
            "range"_a)
        .def("check_invariants", &RangeAllocator::check_invariants)
        .def_prop_ro("alignment", &RangeAllocator::alignment)
        .def_prop_ro("capacity", &RangeAllocator::capacity)
        .def_prop_ro("ready_bytes", &RangeAllocator::ready_bytes)
        .def_prop_ro("used_bytes", &RangeAllocator::used_bytes)
        .def_prop_ro("free_bytes", &RangeAllocator::free_bytes)
        .def_prop_ro("largest_free", &RangeAllocator::largest_free)
        .def_prop_ro("range_count", &RangeAllocator::range_count)
        .def_prop_ro("record_bytes", &RangeAllocator::record_bytes);
}

}  // namespace mooncake::bindings
