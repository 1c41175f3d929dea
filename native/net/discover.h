// Finds a master's lane from its gRPC address with one unary call, MasterService.Discover, spoken over a
// plain socket: a node imports no gRPC, and an engine whose Python is busy still finds a restarted master.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "net/endpoint.h"
#include "wire/bytes.h"
#include "wire/ids.h"

namespace mooncake::net {

struct Discovery {
    bool found = false;
    bool is_deposed = false;  // it answered that it stepped down; `master` is known, and it is not found
    Endpoint lane;
    std::uint64_t epoch = 0;
    wire::Uuid master{};
    std::string software;  // the master's version
    std::string why;       // when not found: what happened, naming the address
};

// Whom the asker is mounted at. An older master that is told so steps down.
struct Reign {
    std::uint64_t epoch = 0;  // 0: nobody
    wire::Uuid master{};
};

// Blocks at most timeout_ms, less when given_up says so (net/dial.h). An advertised lane host of "" or
// "0.0.0.0" or "::" means the host that was asked.
Discovery discover(const Endpoint& master, std::uint64_t timeout_ms,
                   const std::function<bool()>& given_up = {}, const Reign& followed = {});

// What `master` said: the bytes of a DiscoverReply, which need not be one.
Discovery read_discovery(const Endpoint& master, wire::Bytes message);

}  // namespace mooncake::net
