// _core.why_not_mapped: whether this process can map a node's memory, found out as a client's call does it.
#include <nanobind/stl/string.h>

#include <string>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "client/local_peers.h"
#include "net/event_loop.h"
#include "net/random.h"

namespace mooncake::bindings {

namespace nb = nanobind;
using namespace nanobind::literals;

namespace {

nb::tuple why_not_mapped(const std::string& address, const std::string& local, const std::string& tenant,
                         bool shared_memory, std::uint64_t timeout_ms) {
    constexpr client::PeerId kNode = 1;
    const auto endpoint = net::parse_endpoint(address);
    if (!endpoint) throw nb::value_error(("'" + address + "' is not host:port").c_str());
    client::LocalPeer found;
    {
        const GilReleased released;
        client::LocalPeers peers(shared_memory);
        wire::Hello hello;
        hello.role = wire::Role::kData;
        hello.process = net::random_uuid();
        hello.software = MOONCAKE_VERSION;
        hello.tenant = tenant;
        const auto deadline_ms = net::monotonic_ms() + timeout_ms;
        if (const auto dial = peers.dial(kNode, *endpoint, local, hello, deadline_ms)) {
            std::string why;
            auto status = wire::Status::kOk;
            const auto socket = net::ClientSocket::connect(*dial, deadline_ms, why, status);
            if (socket) {
                peers.dialled(kNode, *socket);
            } else {
                peers.failed(kNode, why, net::monotonic_ms());
            }
        }
        found = peers.list().front();
    }
    return nb::make_tuple(found.mapped_bytes, found.why);
}

}  // namespace

void bind_why_not_mapped(nb::module_& module) {
    module.def("why_not_mapped", why_not_mapped, "address"_a, "local"_a, "tenant"_a, "shared_memory"_a,
               "timeout_ms"_a,
               "Bytes of a node's memory that this process can map, and why not where that is 0.");
}

}  // namespace mooncake::bindings
