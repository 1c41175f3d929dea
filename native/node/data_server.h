// The door to a node's memory: data connections (role 3) on an event loop, read, write and ping.
//
// Owns the listening socket and its loops; knows nothing of the master. What is served and what is refused
// is decided by the directory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/connection.h"
#include "node/holdings.h"
#include "wire/ids.h"

namespace mooncake::node {

struct DataServerOptions {
    std::string host = "0.0.0.0";
    std::uint16_t port = 0;  // 0: any
    std::size_t threads = 2;
    std::size_t connections_max = 16'384;
    std::uint64_t peer_bytes_max = 256u << 20;  // in flight to and from one client process; beyond it, BUSY
    // The abstract name of a Unix socket by which clients of the same host and user map the memory; empty:
    // none.
    std::string local_name = {};
    std::string software = "mooncake-store";
    net::ConnectionLimits limits;
};

// What answers one connection: the server makes one for each, and so does whoever brings bytes by other ways
// than a socket.
std::unique_ptr<net::ConnectionHandler> data_connection(std::shared_ptr<struct DataShared> shared);

class DataServer {
  public:
    // Throws std::system_error naming host and port when it cannot listen.
    DataServer(std::shared_ptr<Holdings> holdings, const DataServerOptions& options);
    ~DataServer();
    void stop();  // ends every connection; their references and unfinished writes are given back

    // What hello is answered with: this life of the node.
    void set_incarnation(const wire::Uuid& incarnation);
    std::uint16_t port() const;
    // References that clients of this host hold as long as they like.
    std::uint64_t held_references() const;
    std::vector<std::pair<std::string, std::uint64_t>> stats() const;

  private:
    std::shared_ptr<struct DataShared> shared_;
    net::LoopThreads loops_;
    std::unique_ptr<net::Server> server_;
    std::unique_ptr<net::Server> local_server_;  // may be nullptr
};

}  // namespace mooncake::node
