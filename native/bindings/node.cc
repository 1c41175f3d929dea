// Node: memory lent to the pool, for the node daemon and for processes that embed one.
#include "node/node.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/os_error.h"

namespace nb = nanobind;

namespace mooncake::bindings {
namespace {

using node::Node;
using node::NodeOptions;

nb::bytes bytes_of(const wire::Uuid& uuid) { return nb::bytes(uuid.data(), uuid.size()); }

nb::dict status_of(const Node& self) {
    node::NodeStatus status;
    {
        const GilReleased released;
        status = self.status();
    }
    nb::dict named;
    named["connected"] = status.control.connected;
    named["mounted"] = status.control.mounted;
    named["unreachable"] = status.control.unreachable;
    named["fenced"] = status.fenced;
    named["epoch"] = status.control.epoch;
    named["master"] = bytes_of(status.control.master);
    named["session"] = status.control.session;
    named["incarnation"] = bytes_of(status.control.incarnation);
    named["segments"] = status.control.segments;
    named["segment_names"] = status.segment_names;
    named["data_endpoint"] = status.data_endpoint;
    named["local_endpoint"] = status.local_endpoint;
    named["last_error"] = status.control.last_error;
    named["memory_error"] = status.memory_error;
    named["last_command_id"] = status.control.last_command_id;

    nb::dict counts;
    counts["comparisons_total"] = status.control.comparisons_total;
    counts["inventories_total"] = status.control.inventories_total;
    counts["reported_replicas_total"] = status.control.reported_replicas_total;
    counts["mounts_total"] = status.control.mounts_total;
    counts["expulsions_total"] = status.control.expulsions_total;
    counts["reports_total"] = status.control.reports_total;
    counts["retired_total"] = status.control.retired_total;
    counts["copies_ordered_total"] = status.control.copies_ordered_total;
    counts["handed_over_total"] = status.control.handed_over_total;
    counts["ready_bytes"] = status.ready_bytes;
    counts["capacity_bytes"] = status.counts.capacity_bytes;
    counts["used_bytes"] = status.counts.used_bytes;
    counts["header_bytes"] = status.counts.header_bytes;
    counts["replicas_count"] = status.counts.replicas;
    counts["sealed_count"] = status.counts.sealed;
    counts["receiving_count"] = status.counts.receiving;
    counts["draining_count"] = status.counts.draining;
    counts["references_count"] = status.counts.references;
    counts["gone_total"] = status.counts.gone;
    counts["digest_mismatches_total"] = status.counts.digest_mismatches;
    counts["fenced_refusals_total"] = status.counts.fenced_refusals;
    counts["stale_grants_total"] = status.counts.stale_grants;
    counts["no_ranges_total"] = status.counts.no_ranges;
    for (const auto& [name, value] : status.stats) counts[name.c_str()] = value;
    named["stats"] = counts;
    return named;
}

void start(Node& self) {
    try {
        const GilReleased released;
        self.start();
    } catch (const std::system_error& error) {
        raise_os_error(error);
    }
}

}  // namespace

void bind_node(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<Node>(module, "Node", "Memory lent to the pool, served on a data port, mounted at a master.")
        .def(
            "__init__",
            [](Node* self, const std::vector<std::pair<std::string, std::uint64_t>>& segments,
               std::vector<std::string> masters, std::string lane, std::string data_host,
               std::uint16_t data_port, std::string advertised_host, std::string host_id, std::string name,
               std::size_t data_threads, std::size_t memory_fault_threads, bool hugepages,
               std::size_t connections_max, std::uint64_t peer_bytes_max, std::uint64_t connect_timeout_ms,
               std::uint64_t request_timeout_ms, std::uint64_t stall_timeout_ms, bool shared_memory,
               const std::vector<std::pair<std::string, std::uint64_t>>& files) {
                NodeOptions options;
                if (files.size() > segments.size()) throw nb::value_error("more files than segments");
                for (const auto& [segment_name, bytes] : segments) {
                    options.segments.push_back({segment_name, bytes, {}});
                }
                for (std::size_t i = 0; i < files.size(); ++i) {
                    if (files[i].first.empty()) throw nb::value_error("a file needs a path");
                    options.segments[i].file = {files[i].first, files[i].second};
                }
                options.masters = std::move(masters);
                options.lane = std::move(lane);
                options.data_host = std::move(data_host);
                options.data_port = data_port;
                options.advertised_host = std::move(advertised_host);
                options.host_id = std::move(host_id);
                options.name = std::move(name);
                options.data_threads = data_threads;
                options.memory_fault_threads = memory_fault_threads;
                options.hugepages = hugepages;
                options.connections_max = connections_max;
                options.peer_bytes_max = peer_bytes_max;
                options.software = "mooncake-store " MOONCAKE_VERSION;
                options.connect_timeout_ms = connect_timeout_ms;
                options.request_timeout_ms = request_timeout_ms;
                options.stall_timeout_ms = stall_timeout_ms;
                options.shared_memory = shared_memory;
                new (self) Node(std::move(options));
            },
            "segments"_a, nb::kw_only(), "masters"_a = std::vector<std::string>{}, "lane"_a = "",
            "data_host"_a = "0.0.0.0", "data_port"_a = 0, "advertised_host"_a = "", "host_id"_a = "",
            "name"_a = "", "data_threads"_a = 2, "memory_fault_threads"_a = 4, "hugepages"_a = false,
            "connections_max"_a = 16'384, "peer_bytes_max"_a = std::uint64_t{256} << 20,
            "connect_timeout_ms"_a = 1'000, "request_timeout_ms"_a = 3'000, "stall_timeout_ms"_a = 10'000,
            "shared_memory"_a = true, "files"_a = std::vector<std::pair<std::string, std::uint64_t>>{})
        .def("start", start)
        .def("stop", &Node::stop, "handover_ms"_a = 0, nb::call_guard<GilReleased>())
        .def("wait_mounted", &Node::wait_mounted, "timeout_ms"_a, nb::call_guard<GilReleased>())
        .def("status", &status_of)
        .def_prop_ro("data_port", &Node::data_port)
        .def(
            "check_invariants",
            [](const Node& self) {
                if (!self.holdings()) return;
                self.holdings()->with_directory(
                    [](node::Directory& directory) { directory.check_invariants(); });
            },
            nb::call_guard<GilReleased>());
}

}  // namespace mooncake::bindings
