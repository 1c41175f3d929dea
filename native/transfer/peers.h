// The engines that this one has spoken to: their connections, and which life of a process each is.
//
// An address is only a port of a host: behind it may be another process today, to which an address of memory
// means something else. So a connection that finds another process than the last one did fails the call that
// made it, once; whoever asks anew is taken to know the new one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "net/client_socket.h"
#include "net/connection_pool.h"
#include "net/endpoint.h"
#include "wire/frame.h"

namespace mooncake::transfer {

// Known at once; beyond it those without a call are forgotten, with their connections.
inline constexpr std::size_t kPeersMax = 4'096;

class Peer {
  public:
    Peer(net::Endpoint endpoint, std::size_t connections_max)
        : endpoint_(std::move(endpoint)), pool_(connections_max, ~std::uint64_t{0}, 0) {}

    const net::Endpoint& endpoint() const { return endpoint_; }
    net::ConnectionPool& pool() { return pool_; }
    // Whether this is the process that is known to be there; the first one after forget() is.
    bool recognise(const wire::Uuid& process);
    void forget();

  private:
    const net::Endpoint endpoint_;
    net::ConnectionPool pool_;
    std::mutex mutex_;  // guards what follows
    std::optional<wire::Uuid> process_;
};

class Peers {
  public:
    explicit Peers(std::size_t connections_max) : connections_max_(connections_max) {}
    std::shared_ptr<Peer> find(const net::Endpoint& endpoint);
    void close_idle();

  private:
    const std::size_t connections_max_;
    std::mutex mutex_;  // guards what follows
    std::map<std::string, std::shared_ptr<Peer>> peers_;
};

}  // namespace mooncake::transfer
