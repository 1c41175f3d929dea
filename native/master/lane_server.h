// The lane: the master's binary door, for clients and for nodes, on native threads.
//
// Owns the listening socket, the lane threads and what may be asked on which connection (hello first, verbs
// by role, bounds on one peer). Must not know what any request means: bodies go to the StateDriver as they
// are, and answers come back packed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "master/state_driver.h"
#include "net/connection.h"
#include "net/event_loop.h"

namespace mooncake::master {

struct LaneOptions {
    std::string host = "0.0.0.0";
    std::uint16_t port = 0;   // 0: any free one
    std::size_t threads = 0;  // 0: one for each two cores, at least one
    std::size_t connections_max = 16'384;
    std::string software;  // our version, for hello
    wire::Uuid master{};
    // Of one connection, not answered yet; beyond either a request is answered BUSY. A client pipelines
    // batches, and only parked calls stay unanswered for long.
    std::size_t requests_max = 1'024;
    std::size_t request_bytes_max = 64u << 20;
};

struct LaneCounters {
    std::atomic<std::uint64_t> connections_total{0};
    std::atomic<std::uint64_t> frames_total{0};
    std::atomic<std::uint64_t> malformed_total{0};
    std::atomic<std::uint64_t> version_refusals_total{0};
    std::atomic<std::uint64_t> role_refusals_total{0};
    std::atomic<std::uint64_t> busy_total{0};
};

// What answers one connection: the server makes one for each, and so does whoever brings bytes by other ways
// than a socket. `options` and `counters` must outlive it.
std::unique_ptr<net::ConnectionHandler> lane_connection(std::shared_ptr<StateDriver> driver,
                                                        const LaneOptions& options, LaneCounters& counters);

class LaneServer {
  public:
    // Listens at once. Raises std::system_error naming host and port when it cannot.
    LaneServer(std::shared_ptr<StateDriver> driver, const LaneOptions& options);
    ~LaneServer();
    void stop();  // ends every connection and the threads; idempotent
    std::uint16_t port() const;
    std::vector<std::pair<std::string, std::uint64_t>> stats() const;

  private:
    struct Shared;
    std::shared_ptr<Shared> shared_;
    net::LoopThreads loops_;
    std::unique_ptr<net::Server> server_;
};

}  // namespace mooncake::master
