// Directory, for tests and simulations in Python. What a native caller must not do (and asserts on) raises
// ValueError here.
#include "node/core/directory.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace mooncake::bindings {
namespace {

using node::Directory;

// One reader's hold on a range. Closed explicitly: the model tests decide when.
struct DirectoryReference {
    Directory::View view;
    bool open = true;
};

// A Directory and what is needed to turn misuse into an exception.
class DirectoryForTests {
  public:
    explicit DirectoryForTests(std::size_t retired_ids_max)
        : directory_(node::DirectoryOptions{.retired_ids_max = retired_ids_max}) {}

    std::pair<int, std::uint64_t> begin_write(wire::ReplicaId replica, wire::SegmentId segment,
                                              std::uint64_t length, nb::bytes header, std::uint64_t epoch) {
        wire::WriteItem item;
        item.replica = replica;
        item.segment = segment;
        item.length = length;
        item.header_bytes = static_cast<std::uint32_t>(header.size());
        const wire::Bytes bytes{static_cast<const std::uint8_t*>(header.data()), header.size()};
        const auto granted = directory_.begin_write(item, bytes, epoch);
        if (wire::ok(granted.status)) receiving_.insert(replica);
        return {static_cast<int>(granted.status), granted.offset};
    }
    int seal(wire::ReplicaId replica) {
        end_receive(replica);
        return static_cast<int>(directory_.seal(replica));
    }
    void cancel(wire::ReplicaId replica) {
        end_receive(replica);
        directory_.cancel(replica);
    }
    std::unique_ptr<DirectoryReference> open(wire::ReplicaId replica, std::uint64_t digest) {
        const auto view = directory_.open(replica, digest);
        if (view.reference == nullptr) return nullptr;
        return std::make_unique<DirectoryReference>(DirectoryReference{.view = view});
    }
    void close(DirectoryReference& reference) {
        if (!reference.open) throw nb::value_error("the reference was closed before");
        reference.open = false;
        directory_.close(reference.view.reference);
    }
    // All parts at once: (replica, segment id, encoded value header).
    std::vector<std::tuple<wire::ReplicaId, wire::SegmentId, nb::bytes>> inventory() {
        std::vector<std::tuple<wire::ReplicaId, wire::SegmentId, nb::bytes>> listed;
        for (std::size_t part = 0; part < Directory::kInventoryParts; ++part) {
            for (const auto replica : directory_.take_inventory(part)) {
                std::vector<wire::InventoryItem> items;
                wire::Buffer header;
                wire::Writer writer(header);
                if (!directory_.describe(replica, items, writer)) continue;
                listed.emplace_back(replica, items[0].segment, nb::bytes(header.data(), header.size()));
            }
        }
        return listed;
    }
    void acknowledge_freed(std::size_t count) {
        if (count > directory_.pending_freed_count()) throw nb::value_error("more than there are");
        directory_.acknowledge_freed(count);
    }
    Directory& native() { return directory_; }

  private:
    void end_receive(wire::ReplicaId replica) {
        if (receiving_.erase(replica) == 0) {
            throw nb::value_error(("replica " + std::to_string(replica) + " is not being received").c_str());
        }
    }

    Directory directory_;
    std::unordered_set<wire::ReplicaId> receiving_;
};

nb::dict counts_of(Directory& directory) {
    const auto counts = directory.counts();
    nb::dict named;
    named["replicas"] = counts.replicas;
    named["sealed"] = counts.sealed;
    named["receiving"] = counts.receiving;
    named["draining"] = counts.draining;
    named["references"] = counts.references;
    named["capacity_bytes"] = counts.capacity_bytes;
    named["used_bytes"] = counts.used_bytes;
    named["header_bytes"] = counts.header_bytes;
    named["gone"] = counts.gone;
    named["digest_mismatches"] = counts.digest_mismatches;
    named["fenced_refusals"] = counts.fenced_refusals;
    named["stale_grants"] = counts.stale_grants;
    named["no_ranges"] = counts.no_ranges;
    return named;
}

nb::dict report_of(Directory& directory, node::SegmentIndex segment, wire::ReplicaId settled_id) {
    const auto report = directory.report(segment, settled_id);
    nb::dict named;
    named["segment"] = report.segment;
    named["ready_bytes"] = report.ready_bytes;
    named["receiving_bytes"] = report.receiving_bytes;
    named["draining_bytes"] = report.draining_bytes;
    named["largest_free_bytes"] = report.largest_free_bytes;
    named["sealed_count"] = report.sealed_count;
    named["sealed_checksum"] = report.sealed_checksum;
    return named;
}

node::SegmentIndex checked(Directory& directory, std::size_t segment) {
    if (segment >= directory.segment_count()) throw nb::value_error("no such segment");
    return static_cast<node::SegmentIndex>(segment);
}

}  // namespace

void bind_directory(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<DirectoryReference>(module, "DirectoryReference", "One reader's hold on a range.")
        .def_prop_ro("offset", [](const DirectoryReference& self) { return self.view.offset; })
        .def_prop_ro("size", [](const DirectoryReference& self) { return self.view.size; })
        .def_prop_ro("segment", [](const DirectoryReference& self) { return self.view.segment; })
        .def_prop_ro("checksum", [](const DirectoryReference& self) { return self.view.checksum; })
        .def_prop_ro("header", [](const DirectoryReference& self) {
            if (!self.open) throw nb::value_error("the reference was closed before");
            return nb::bytes(self.view.header.data(), self.view.header.size());
        });

    nb::class_<DirectoryForTests>(module, "Directory", "Which replica lies in which range, and who reads it.")
        .def(nb::init<std::size_t>(), "retired_ids_max"_a = 65'536)
        .def(
            "add_segment",
            [](DirectoryForTests& self, std::uint64_t capacity_bytes) {
                if (self.native().segment_count() == wire::kSegmentsAMountMax) {
                    throw nb::value_error("too many segments");
                }
                return self.native().add_segment(capacity_bytes);
            },
            "capacity_bytes"_a)
        .def(
            "set_ready",
            [](DirectoryForTests& self, std::size_t segment, std::uint64_t bytes) {
                self.native().set_ready(checked(self.native(), segment), bytes);
            },
            "segment"_a, "ready_bytes"_a)
        .def(
            "attach",
            [](DirectoryForTests& self, std::size_t segment, wire::SegmentId id) {
                self.native().attach(checked(self.native(), segment), id);
            },
            "segment"_a, "segment_id"_a)
        .def(
            "expel",
            [](DirectoryForTests& self, std::size_t segment) {
                self.native().expel(checked(self.native(), segment));
            },
            "segment"_a)
        .def("sweep", [](DirectoryForTests& self) { return self.native().sweep(); })
        .def(
            "adopt", [](DirectoryForTests& self, std::uint64_t epoch) { self.native().adopt(epoch); },
            "epoch"_a)
        .def(
            "set_fenced", [](DirectoryForTests& self, bool fenced) { self.native().set_fenced(fenced); },
            "fenced"_a)
        .def(
            "set_now", [](DirectoryForTests& self, std::uint64_t now_ms) { self.native().set_now(now_ms); },
            "now_ms"_a)
        .def("inventory", &DirectoryForTests::inventory)
        .def(
            "begin_write",
            [](DirectoryForTests& self, wire::ReplicaId replica, wire::SegmentId segment,
               std::uint64_t length, nb::bytes header, std::uint64_t epoch) {
                const auto [status, offset] = self.begin_write(replica, segment, length, header, epoch);
                return nb::make_tuple(status, offset);
            },
            "replica"_a, "segment_id"_a, "length"_a, "header"_a, "epoch"_a)
        .def("seal", &DirectoryForTests::seal, "replica"_a)
        .def("cancel", &DirectoryForTests::cancel, "replica"_a)
        .def("open", &DirectoryForTests::open, "replica"_a, "digest"_a)
        .def("close", &DirectoryForTests::close, "reference"_a)
        .def(
            "retire",
            [](DirectoryForTests& self, const std::vector<wire::ReplicaId>& replicas) {
                std::vector<wire::ReplicaId> freed;
                self.native().retire(replicas, freed);
                return freed;
            },
            "replicas"_a)
        .def(
            "pending_freed",
            [](DirectoryForTests& self, std::size_t max) { return self.native().pending_freed(max); },
            "max"_a = wire::kReplicaIdsMax)
        .def("acknowledge_freed", &DirectoryForTests::acknowledge_freed, "count"_a)
        .def(
            "report",
            [](DirectoryForTests& self, std::size_t segment, wire::ReplicaId settled_id) {
                return report_of(self.native(), checked(self.native(), segment), settled_id);
            },
            "segment"_a, "settled_id"_a)
        .def("counts", [](DirectoryForTests& self) { return counts_of(self.native()); })
        .def("check_invariants", [](DirectoryForTests& self) { self.native().check_invariants(); })
        .def_prop_ro("epoch", [](DirectoryForTests& self) { return self.native().epoch(); })
        .def_prop_ro("retired_count", [](DirectoryForTests& self) { return self.native().retired_count(); });
}

}  // namespace mooncake::bindings
