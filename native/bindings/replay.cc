// Traces through the state machine, and the bounds beside them: many requests a call, without the GIL.
#include "replay/replay.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>

#include "bindings/bindings.h"
#include "bindings/buffer.h"
#include "replay/bounds.h"
#include "wire/range_bytes.h"

using namespace nanobind::literals;

namespace mooncake::bindings {

namespace nb = nanobind;

namespace {

using replay::Bound;
using replay::Replay;
using replay::Score;

template <class T>
std::span<const T> values(const BorrowedBuffer& buffer, const char* name) {
    if (buffer.size() % sizeof(T) != 0) {
        throw nb::value_error(
            (std::string(name) + ": the buffer's length is no whole number of items").c_str());
    }
    return {reinterpret_cast<const T*>(buffer.data()), buffer.size() / sizeof(T)};
}

nb::tuple to_python(const Score& score) {
    return nb::make_tuple(score.requests, score.accesses, score.hits, score.prefix_hits);
}

// Calls one(blocks, i) for each request.
template <class One>
void each_request(std::span<const std::uint32_t> blocks, std::span<const std::uint32_t> lengths, One&& one) {
    std::uint64_t total = 0;
    for (const auto length : lengths) total += length;
    if (total != blocks.size()) throw nb::value_error("the requests' lengths are not all blocks together");
    const nb::gil_scoped_release release;
    std::size_t first = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        one(blocks.subspan(first, lengths[i]), i);
        first += lengths[i];
    }
}

void construct_replay(Replay* self, std::uint64_t capacity_blocks, std::uint64_t block_bytes,
                      const std::string& policy) {
    constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 62;
    if (capacity_blocks == 0 || block_bytes == 0 || block_bytes > wire::kValueBytesMax ||
        capacity_blocks > kBytesMax / (block_bytes + 64)) {
        throw nb::value_error("capacity_blocks and block_bytes are 1 and up, and below 2^62 together");
    }
    const auto kind = metadata::eviction_policy_of(policy);
    if (!kind) throw nb::value_error(("no eviction policy is called '" + policy + "'").c_str());
    metadata::Options options;
    options.eviction_policy = *kind;
    new (self) Replay(options, capacity_blocks, block_bytes);
}

nb::tuple run_replay(Replay& self, const nb::object& blocks, const nb::object& lengths,
                     const nb::object& times_ms) {
    const BorrowedBuffer block_buffer(blocks, BorrowedBuffer::Access::kRead);
    const BorrowedBuffer length_buffer(lengths, BorrowedBuffer::Access::kRead);
    const BorrowedBuffer time_buffer(times_ms, BorrowedBuffer::Access::kRead);
    const auto counts = values<std::uint32_t>(length_buffer, "lengths");
    const auto times = values<std::uint64_t>(time_buffer, "times_ms");
    if (times.size() != counts.size()) throw nb::value_error("times_ms: one a request");
    each_request(values<std::uint32_t>(block_buffer, "blocks"), counts,
                 [&](std::span<const std::uint32_t> one, std::size_t i) { self.request(one, times[i]); });
    return to_python(self.score());
}

void construct_bound(Bound* self, const nb::object& blocks, std::uint64_t capacity_blocks) {
    const BorrowedBuffer buffer(blocks, BorrowedBuffer::Access::kRead);
    const auto all = values<std::uint32_t>(buffer, "blocks");
    // A number is an index; who numbers them uses none that is far above their count.
    for (const auto block : all) {
        if (block >= all.size()) throw nb::value_error("blocks: a number is not below the count of accesses");
    }
    const nb::gil_scoped_release release;
    new (self) Bound(all, capacity_blocks);
}

nb::tuple run_bound(Bound& self, const nb::object& blocks, const nb::object& lengths) {
    const BorrowedBuffer block_buffer(blocks, BorrowedBuffer::Access::kRead);
    const BorrowedBuffer length_buffer(lengths, BorrowedBuffer::Access::kRead);
    const auto accesses = values<std::uint32_t>(block_buffer, "blocks");
    if (self.accesses_left() < accesses.size())
        throw nb::value_error("blocks: more than the whole trace has");
    each_request(accesses, values<std::uint32_t>(length_buffer, "lengths"),
                 [&](std::span<const std::uint32_t> one, std::size_t) { self.request(one); });
    return to_python(self.score());
}

nb::dict stats(const Replay& self) {
    nb::dict dict;
    for (const auto& [name, value] : self.stats()) dict[name.c_str()] = value;
    return dict;
}

}  // namespace

void bind_replay(nb::module_& module) {
    module.def("eviction_policies", [] {
        nb::list names;
        for (const auto& [name, kind] : metadata::kEvictionPolicies)
            names.append(nb::str(name.data(), name.size()));
        return names;
    });
    module.def(
        "range_bytes", [](std::uint64_t size) { return wire::range_bytes(size, wire::Tier::kDram); },
        "size"_a);
    nb::class_<Replay>(module, "TraceReplay")
        .def("__init__", &construct_replay, "capacity_blocks"_a, "block_bytes"_a, "policy"_a)
        .def("run", &run_replay, "blocks"_a, "lengths"_a, "times_ms"_a)
        .def("stats", &stats)
        .def("check_invariants", &Replay::check_invariants);
    nb::class_<Bound>(module, "TraceBound")
        .def("__init__", &construct_bound, "blocks"_a, "capacity_blocks"_a)
        .def("run", &run_bound, "blocks"_a, "lengths"_a);
}

}  // namespace mooncake::bindings
