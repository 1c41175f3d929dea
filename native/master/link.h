// One lane connection as the driver sees it: who is at its other end and how to send to it. The lane server
// makes it (native/master/lane_server.cc); tests make their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "wire/frame.h"
#include "wire/ids.h"

namespace mooncake::master {

struct Link {
    Link(wire::Role its_role, std::function<void(wire::Buffer)> its_send,
         std::function<void(std::string)> its_close)
        : role(its_role), send(std::move(its_send)), close(std::move(its_close)) {}

    const wire::Role role;
    const std::function<void(wire::Buffer)> send;  // a whole frame; any thread; never blocks
    const std::function<void(std::string)> close;  // any thread; why

    // Requests of this connection that are not answered yet: the lane server's bound on one peer.
    std::atomic<std::size_t> requests{0};
    std::atomic<std::size_t> request_bytes{0};

    // Keeps commands to this node in the order of their command_ids. Taken before the state lock, never
    // inside it.
    std::mutex sending;

    // Under the state lock: the sessions that spoke on this connection.
    std::vector<wire::SessionId> sessions;
    bool is_closed = false;
};
using LinkPtr = std::shared_ptr<Link>;

}  // namespace mooncake::master
