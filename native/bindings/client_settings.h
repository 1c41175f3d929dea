// How Python names a client's settings, for both classes that have them, and what it hears when a client
// cannot connect.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/gil.h"
#include "client/client.h"

namespace mooncake::bindings {

namespace nb = nanobind;

[[noreturn]] inline void raise_not_connected(wire::Status status, const std::string& why) {
    if (status == wire::Status::kInvalidParams) throw nb::value_error(why.c_str());
    PyErr_SetString(PyExc_ConnectionError, why.c_str());
    throw nb::python_error();
}

inline nb::dict to_python(const client::LocationCounts& counts) {
    nb::dict dict;
    dict["hits"] = counts.hits;
    dict["stale"] = counts.stale;
    dict["evicted"] = counts.evicted;
    dict["untold_accesses"] = counts.untold_accesses;
    dict["entries"] = counts.entries;
    return dict;
}

inline client::Control to_control(const std::string& name, std::string& why) {
    if (name == "auto") return client::Control::kAuto;
    if (name == "lane") return client::Control::kLane;
    if (name == "grpc") return client::Control::kGrpc;
    why = "control is '" + name + "'; it must be auto, lane or grpc";
    return client::Control::kAuto;
}

// A Python callable as client::StartBridge: (lane, master, lane_why) -> fd. Threads without the GIL call it
// and may be the last to hold it.
inline client::StartBridge to_start_bridge(const nb::object& bridge) {
    if (bridge.is_none()) return {};
    const std::shared_ptr<nb::object> held(new nb::object(bridge), [](nb::object* object) {
        if (!Py_IsInitialized()) return;  // nobody is left to take it
        const GilHeld gil;
        delete object;
    });
    return [held](const std::string& lane, const std::string& master, const std::string& lane_why,
                  std::string& why) {
        const GilHeld gil;
        try {
            return nb::cast<int>((*held)(lane, master, lane_why));
        } catch (const nb::python_error& error) {
            why = nb::str(error.value()).c_str();
        } catch (const std::exception& error) {
            why = error.what();
        }
        return -1;
    };
}

// Defines the constructor of `bound`: make(options, more...) with options that are checked. more: further
// arguments, named by `names`.
template <class Bound, class Made, class... More, class... Names>
void define_settings(Bound& bound, Made (*make)(const client::Options&, More...), const Names&... names) {
    using namespace nanobind::literals;
    const client::Options defaults;
    bound.def(
        nb::new_([make](std::vector<std::string> masters, std::string lane, std::string tenant,
                        std::string name, std::string host_id, std::uint64_t connect_timeout_ms,
                        std::uint64_t rpc_timeout_ms, std::uint32_t connections_a_peer_max,
                        std::uint64_t bytes_in_flight_a_peer_max, bool checksums,
                        std::uint32_t location_cache_max, const std::string& control,
                        const nb::object& bridge, bool shared_memory, More... more) {
            client::Options options;
            options.masters = std::move(masters);
            options.lane = std::move(lane);
            options.tenant = std::move(tenant);
            options.name = std::move(name);
            options.host_id = std::move(host_id);
            options.connect_timeout_ms = connect_timeout_ms;
            options.rpc_timeout_ms = rpc_timeout_ms;
            options.connections_a_peer_max = connections_a_peer_max;
            options.bytes_in_flight_a_peer_max = bytes_in_flight_a_peer_max;
            options.checksums = checksums;
            options.location_cache_max = location_cache_max;
            options.shared_memory = shared_memory;
            std::string why;
            options.control = to_control(control, why);
            options.start_bridge = to_start_bridge(bridge);
            if (!why.empty() || !client::check(options, why))
                raise_not_connected(wire::Status::kInvalidParams, why);
            return make(options, more...);
        }),
        "masters"_a = std::vector<std::string>{}, nb::kw_only(), "lane"_a = "", "tenant"_a = defaults.tenant,
        "name"_a = "", "host_id"_a = "", "connect_timeout_ms"_a = defaults.connect_timeout_ms,
        "rpc_timeout_ms"_a = defaults.rpc_timeout_ms,
        "connections_a_peer_max"_a = defaults.connections_a_peer_max,
        "bytes_in_flight_a_peer_max"_a = defaults.bytes_in_flight_a_peer_max,
        "checksums"_a = defaults.checksums, "location_cache_max"_a = defaults.location_cache_max,
        "control"_a = "auto", "bridge"_a = nb::none(), "shared_memory"_a = defaults.shared_memory, names...);
}

}  // namespace mooncake::bindings
