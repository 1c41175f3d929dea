// The one call of a master's gRPC door that native code makes: MasterService.Discover. The real door is
// Python's; this one answers the same bytes, from a fiber of the master's host.
//
// Knows of HTTP/2 only what native/net/http2.cc reads.
#pragma once

#include <memory>

#include "master/master.h"

namespace simulation {

// Returns once `is_over` is true, with every descriptor closed; uses the master only before.
void serve_discovery(const mooncake::master::Master& master, std::uint16_t port,
                     const std::shared_ptr<const bool>& is_over);

}  // namespace simulation
