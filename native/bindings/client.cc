// _core.Client and _core.OpenValues: the native client for callers that wait. The GIL is released round every
// call; on the main thread Python's signals are looked at every kWakeMs, so that Ctrl-C ends a blocked call.
#include "client/client.h"

#include <nanobind/stl/unique_ptr.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "bindings/client_calls.h"
#include "bindings/client_settings.h"
#include "bindings/gil.h"
#include "bindings/signal_watch.h"
#include "net/event_loop.h"

namespace mooncake::bindings {

using namespace nanobind::literals;
using client::CallReport;
using client::Client;

namespace {

std::unique_ptr<Client> connect(const client::Options& options) {
    std::string why;
    auto status = wire::Status::kOk;
    SignalWatch watch;
    std::unique_ptr<Client> made;
    {
        const GilReleased released;
        made = Client::connect(options, why, status, [&watch] { return watch(); });
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    if (!made) raise_not_connected(status, why);
    return made;
}

nb::object ask(Client& self, Call call, std::uint64_t timeout_ms) {
    if (timeout_ms == 0) timeout_ms = self.options().rpc_timeout_ms;
    const auto deadline_ms = net::monotonic_ms() + timeout_ms;
    do {
        CallReport report;
        SignalWatch watch;
        {
            const GilReleased released;
            const auto now_ms = net::monotonic_ms();
            call->run(self, {std::max(deadline_ms, now_ms + 1) - now_ms, [&watch] { return watch(); }},
                      report);
        }
        last_why() = std::move(report.why);
        if (report.was_interrupted) throw nb::python_error();
    } while (call->has_more());
    return call->answer(nb::find(self));
}

}  // namespace

void bind_client(nb::module_& module) {
    nb::class_<OpenedValues>(module, "OpenValues")
        .def_prop_ro("statuses", [](const OpenedValues& self) { return status_list(self.values->results()); })
        .def_prop_ro("sizes", [](const OpenedValues& self) { return size_list(self.values->results()); })
        .def_prop_ro("put_ids", [](const OpenedValues& self) { return put_id_list(self.values->results()); })
        .def_prop_ro("user_metadata",
                     [](const OpenedValues& self) { return user_metadata_list(*self.values); });

    nb::class_<Client> bound(module, "Client");
    define_settings(bound, connect);
    define_calls(bound, ask);
    bound.def("close", &Client::close, nb::call_guard<GilReleased>())
        .def_prop_ro("is_closed", &Client::is_closed)
        .def_prop_ro("is_connected", &Client::is_connected)
        .def_prop_ro("is_over_grpc", &Client::is_over_grpc)
        .def_prop_ro("local_nodes", [](const Client& self) { return local_node_list(self.local_peers()); })
        .def_prop_ro("location_counts", [](const Client& self) { return to_python(self.location_counts()); })
        .def_static("why", [] { return last_why(); });
}

}  // namespace mooncake::bindings
