// _core.Client and _core.OpenValues: the native client for Python. The GIL is released round every call; on
// the main thread Python's signals are looked at every kWakeMs, so that Ctrl-C ends a blocked call.
#include "client/client.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include "bindings/bindings.h"
#include "bindings/client_arguments.h"
#include "bindings/gil.h"

namespace mooncake::bindings {

using namespace nanobind::literals;
using client::CallOptions;
using client::CallReport;
using client::Client;
using client::GetResult;
using client::OpenValues;
using client::Target;

namespace {

// How often get_many makes room anew for a value that was replaced by a larger one between lookup and read.
constexpr int kReopensMax = 3;

// Why the latest call of this thread did not get an answer.
thread_local std::string last_why;

bool signal_arrived() {
    if (::gettid() != ::getpid()) return false;  // Python handles signals on the main thread alone
    const GilHeld held;
    return PyErr_CheckSignals() != 0;
}

// Runs `use(options, report)` without the GIL; raises what a signal's handler raised.
template <class Use>
auto call(std::uint64_t timeout_ms, Use use) {
    const CallOptions options{timeout_ms, signal_arrived};
    CallReport report;
    auto answer = [&] {
        const GilReleased released;
        return use(options, report);
    }();
    last_why = std::move(report.why);
    if (report.was_interrupted) throw nb::python_error();
    return answer;
}

nb::list to_list(std::span<const wire::Status> statuses) {
    auto list = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(statuses.size())));
    for (std::size_t i = 0; i < statuses.size(); ++i) {
        PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i),
                        PyLong_FromLong(static_cast<long>(statuses[i])));
    }
    return list;
}

template <class Get>
nb::list to_list(std::span<const GetResult> results, Get get) {
    auto list = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(results.size())));
    for (std::size_t i = 0; i < results.size(); ++i) {
        PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), get(results[i]));
    }
    return list;
}
nb::list status_list(std::span<const GetResult> results) {
    return to_list(results,
                   [](const auto& result) { return PyLong_FromLong(static_cast<long>(result.status)); });
}
nb::list length_list(std::span<const GetResult> results) {
    return to_list(results, [](const auto& result) { return PyLong_FromUnsignedLongLong(result.length); });
}

nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

std::unique_ptr<Client> connect(std::vector<std::string> masters, std::string lane, std::string tenant,
                                std::string name, std::string host_id, std::uint64_t connect_timeout_ms,
                                std::uint64_t rpc_timeout_ms, std::uint32_t connections_a_peer_max,
                                std::uint64_t bytes_in_flight_a_peer_max, bool checksums) {
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
    std::string why;
    auto status = wire::Status::kOk;
    std::unique_ptr<Client> made;
    if (client::check(options, why)) {
        const GilReleased released;
        made = Client::connect(options, why, status);
    } else {
        status = wire::Status::kInvalidParams;
    }
    if (made) return made;
    if (status == wire::Status::kInvalidParams) throw nb::value_error(why.c_str());
    PyErr_SetString(PyExc_ConnectionError, why.c_str());
    throw nb::python_error();
}

// ---- put, get

nb::list put_many(Client& self, nb::handle keys, nb::handle values, int replica_count, int flags,
                  std::uint32_t soft_pin_ms, std::uint64_t ttl_ms, std::vector<std::string> preferred,
                  std::optional<std::vector<nb::bytes>> user_metadata,
                  std::optional<std::vector<std::uint64_t>> parents, std::uint64_t timeout_ms) {
    const PackedKeys packed(keys);
    const PutValues put(values);
    check_count("values", put.values().size(), packed.size());
    if (user_metadata) check_count("user_metadata", user_metadata->size(), packed.size());
    if (parents) check_count("parents", parents->size(), packed.size());
    if (replica_count < 1 || replica_count > static_cast<int>(wire::kReplicasMax)) {
        throw nb::value_error(("replica_count is " + std::to_string(replica_count) + "; it must be 1 to " +
                               std::to_string(wire::kReplicasMax))
                                  .c_str());
    }
    std::vector<std::string_view> metadata;
    if (user_metadata) {
        for (const auto& text : *user_metadata) metadata.emplace_back(text.c_str(), text.size());
    }
    const client::PutOptions options{static_cast<std::uint8_t>(replica_count),
                                     static_cast<std::uint8_t>(flags), soft_pin_ms, ttl_ms,
                                     std::move(preferred)};
    const auto statuses = call(timeout_ms, [&](const CallOptions& how, CallReport& report) {
        return self.put_many(
            packed.views(), put.values(), options, metadata,
            parents ? std::span<const std::uint64_t>(*parents) : std::span<const std::uint64_t>{}, how,
            report);
    });
    return to_list(statuses);
}

nb::tuple get_into_many(Client& self, nb::handle keys, nb::handle targets, std::uint64_t timeout_ms) {
    const PackedKeys packed(keys);
    const GetTargets into(targets);
    check_count("targets", into.targets().size(), packed.size());
    const auto results = call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
        return self.get_into_many(packed.views(), into.targets(), options, report);
    });
    return nb::make_tuple(status_list(results), length_list(results));
}

// The open values together with the keys they look at.
struct OpenedValues {
    PackedKeys keys;
    std::unique_ptr<OpenValues> values;
    bool was_read = false;

    explicit OpenedValues(nb::handle of_keys) : keys(of_keys) {}
};

std::unique_ptr<OpenedValues> open(Client& self, nb::handle keys, bool user_metadata,
                                   std::uint64_t timeout_ms) {
    auto opened = std::make_unique<OpenedValues>(keys);
    opened->values = call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
        return self.open(opened->keys.views(), user_metadata, options, report);
    });
    return opened;
}

nb::tuple read_into(OpenedValues& self, nb::handle targets, std::uint64_t timeout_ms) {
    const GetTargets into(targets);
    check_count("targets", into.targets().size(), self.keys.size());
    if (std::exchange(self.was_read, true))
        throw nb::value_error("these values were read already; open them again");
    call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
        self.values->read_into(into.targets(), options, report);
        return 0;
    });
    return nb::make_tuple(status_list(self.values->results()), length_list(self.values->results()));
}

// Room for every value found, as bytes objects that nobody else has seen yet.
std::vector<nb::object> make_room(std::span<const GetResult> results, std::vector<Target>& targets) {
    std::vector<nb::object> room(results.size());
    targets.assign(results.size(), {});
    for (std::size_t i = 0; i < results.size(); ++i) {
        if (!wire::ok(results[i].status)) continue;
        room[i] = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(results[i].length)));
        if (!room[i].is_valid()) throw nb::python_error();
        targets[i] = {reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(room[i].ptr())), results[i].length};
    }
    return room;
}

// A value replaced between lookup and read may be shorter.
nb::object fitted(nb::object room, std::uint64_t length) {
    if (static_cast<std::uint64_t>(PyBytes_GET_SIZE(room.ptr())) == length) return room;
    PyObject* shorter = room.release().ptr();
    if (_PyBytes_Resize(&shorter, static_cast<Py_ssize_t>(length)) != 0) throw nb::python_error();
    return nb::steal(shorter);
}

// One bytes object a key, or its status; with user metadata, a second list.
nb::object get_many(Client& self, nb::handle keys, bool with_user_metadata, std::uint64_t timeout_ms) {
    const PackedKeys packed(keys);
    nb::list values;
    nb::list metadata;
    for (std::size_t i = 0; i < packed.size(); ++i) {
        values.append(nb::none());
        metadata.append(nb::bytes("", 0));
    }
    std::vector<std::size_t> left(packed.size());
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = i;
    for (int attempt = 0; !left.empty(); ++attempt) {
        std::vector<std::string_view> asked;
        asked.reserve(left.size());
        for (const auto i : left) asked.push_back(packed.views()[i]);
        const auto opened = call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
            return self.open(asked, with_user_metadata, options, report);
        });
        std::vector<Target> targets;
        auto room = make_room(opened->results(), targets);
        call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
            opened->read_into(targets, options, report);
            return 0;
        });
        std::vector<std::size_t> again;
        for (std::size_t j = 0; j < left.size(); ++j) {
            const auto& result = opened->results()[j];
            if (wire::ok(result.status)) {
                values[left[j]] = fitted(std::move(room[j]), result.length);
                if (with_user_metadata) metadata[left[j]] = to_bytes(opened->user_metadata()[j]);
            } else if (result.status == wire::Status::kBufferOverflow && attempt < kReopensMax) {
                again.push_back(left[j]);
            } else {
                values[left[j]] = static_cast<int>(result.status);
            }
        }
        left = std::move(again);
    }
    if (!with_user_metadata) return values;
    return nb::make_tuple(values, metadata);
}

// ---- the other verbs

nb::list exists_many(Client& self, nb::handle keys, bool hold, std::uint64_t timeout_ms) {
    const PackedKeys packed(keys);
    return to_list(call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
        return self.exists_many(packed.views(), hold, options, report);
    }));
}

nb::tuple match_prefix(Client& self, nb::handle keys, bool hold, std::uint64_t timeout_ms) {
    const PackedKeys packed(keys);
    const auto answer = call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
        return self.match_prefix(packed.views(), hold, options, report);
    });
    return nb::make_tuple(static_cast<int>(answer.status), answer.length, static_cast<int>(answer.miss));
}

nb::list remove_many(Client& self, nb::handle keys, bool force, std::uint64_t timeout_ms) {
    const PackedKeys packed(keys);
    return to_list(call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
        return self.remove_many(packed.views(), force, options, report);
    }));
}

nb::list touch_many(Client& self, nb::handle keys, std::uint64_t timeout_ms) {
    const PackedKeys packed(keys);
    return to_list(call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
        return self.touch_many(packed.views(), options, report);
    }));
}

nb::tuple list_keys(Client& self, std::uint64_t cursor, std::uint32_t limit, const nb::bytes& key_prefix,
                    std::uint64_t timeout_ms) {
    const std::string prefix(key_prefix.c_str(), key_prefix.size());
    if (prefix.size() > wire::kKeyBytesMax) throw nb::value_error("key_prefix is longer than a key can be");
    const auto answer = call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
        return self.list(cursor, limit, prefix, options, report);
    });
    nb::list objects;
    for (const auto& object : answer.objects) {
        objects.append(nb::make_tuple(to_bytes(object.key), object.size, object.put_id,
                                      static_cast<int>(object.replica_count),
                                      static_cast<int>(object.flags)));
    }
    return nb::make_tuple(static_cast<int>(answer.status), answer.cursor, objects);
}

nb::tuple segments(Client& self, std::uint64_t timeout_ms) {
    const auto answer = call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
        return self.segments(options, report);
    });
    nb::list segments;
    for (const auto& segment : answer.segments) {
        nb::dict dict;
        dict["segment"] = segment.segment;
        dict["owner"] = segment.owner;
        dict["tier"] = static_cast<int>(segment.tier);
        dict["capacity_bytes"] = segment.capacity_bytes;
        dict["charged_bytes"] = segment.charged_bytes;
        dict["retiring_bytes"] = segment.retiring_bytes;
        dict["replica_count"] = segment.replica_count;
        dict["name"] = nb::steal(PyUnicode_DecodeUTF8(
            segment.name.data(), static_cast<Py_ssize_t>(segment.name.size()), "replace"));
        dict["host_id"] = nb::steal(PyUnicode_DecodeUTF8(
            segment.host_id.data(), static_cast<Py_ssize_t>(segment.host_id.size()), "replace"));
        nb::list endpoints;
        for (const auto& endpoint : segment.endpoints) {
            endpoints.append(nb::steal(
                PyUnicode_DecodeUTF8(endpoint.data(), static_cast<Py_ssize_t>(endpoint.size()), "replace")));
        }
        dict["endpoints"] = endpoints;
        segments.append(dict);
    }
    return nb::make_tuple(static_cast<int>(answer.status), segments);
}

nb::tuple stats(Client& self, std::uint64_t timeout_ms) {
    const auto answer = call(timeout_ms, [&](const CallOptions& options, CallReport& report) {
        return self.stats(options, report);
    });
    nb::dict values;
    for (const auto& [name, value] : answer.values) values[nb::str(name.data(), name.size())] = value;
    return nb::make_tuple(static_cast<int>(answer.status), values);
}

nb::list put_ids(const OpenedValues& self) {
    return to_list(self.values->results(),
                   [](const auto& result) { return PyLong_FromUnsignedLongLong(result.put_id); });
}

nb::list user_metadata(const OpenedValues& self) {
    nb::list list;
    for (const auto& text : self.values->user_metadata()) list.append(to_bytes(text));
    return list;
}

}  // namespace

void bind_client(nb::module_& module) {
    nb::class_<OpenedValues>(module, "OpenValues")
        .def_prop_ro("statuses", [](const OpenedValues& self) { return status_list(self.values->results()); })
        .def_prop_ro("sizes", [](const OpenedValues& self) { return length_list(self.values->results()); })
        .def_prop_ro("put_ids", &put_ids)
        .def_prop_ro("user_metadata", &user_metadata)
        .def("read_into", &read_into, "targets"_a, nb::kw_only(), "timeout_ms"_a = 0);

    const client::Options defaults;
    nb::class_<Client>(module, "Client")
        .def(nb::new_(&connect), "masters"_a = std::vector<std::string>{}, nb::kw_only(), "lane"_a = "",
             "tenant"_a = defaults.tenant, "name"_a = "", "host_id"_a = "",
             "connect_timeout_ms"_a = defaults.connect_timeout_ms,
             "rpc_timeout_ms"_a = defaults.rpc_timeout_ms,
             "connections_a_peer_max"_a = defaults.connections_a_peer_max,
             "bytes_in_flight_a_peer_max"_a = defaults.bytes_in_flight_a_peer_max,
             "checksums"_a = defaults.checksums)
        .def("put_many", &put_many, "keys"_a, "values"_a, nb::kw_only(), "replica_count"_a = 1, "flags"_a = 0,
             "soft_pin_ms"_a = 0, "ttl_ms"_a = 0, "preferred"_a = std::vector<std::string>{},
             "user_metadata"_a = nb::none(), "parents"_a = nb::none(), "timeout_ms"_a = 0)
        .def("get_many", &get_many, "keys"_a, nb::kw_only(), "with_user_metadata"_a = false,
             "timeout_ms"_a = 0)
        .def("get_into_many", &get_into_many, "keys"_a, "targets"_a, nb::kw_only(), "timeout_ms"_a = 0)
        .def("open", &open, nb::keep_alive<0, 1>(), "keys"_a, nb::kw_only(), "user_metadata"_a = false,
             "timeout_ms"_a = 0)
        .def("exists_many", &exists_many, "keys"_a, nb::kw_only(), "hold"_a = true, "timeout_ms"_a = 0)
        .def("match_prefix", &match_prefix, "keys"_a, nb::kw_only(), "hold"_a = true, "timeout_ms"_a = 0)
        .def("remove_many", &remove_many, "keys"_a, nb::kw_only(), "force"_a = false, "timeout_ms"_a = 0)
        .def("touch_many", &touch_many, "keys"_a, nb::kw_only(), "timeout_ms"_a = 0)
        .def("list_keys", &list_keys, "cursor"_a = 0, nb::kw_only(), "limit"_a = 1000,
             "key_prefix"_a = nb::bytes("", 0), "timeout_ms"_a = 0)
        .def("segments", &segments, nb::kw_only(), "timeout_ms"_a = 0)
        .def("stats", &stats, nb::kw_only(), "timeout_ms"_a = 0)
        .def("close", &Client::close, nb::call_guard<GilReleased>())
        .def_prop_ro("is_closed", &Client::is_closed)
        .def_prop_ro("is_connected", &Client::is_connected)
        .def_static("why", [] { return last_why; });
}

}  // namespace mooncake::bindings
