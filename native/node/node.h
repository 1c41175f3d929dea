// A node: memory lent to the pool, served on a data port, mounted at a master for as long as there is one.
//
// Owns the order in which the parts start and stop; every part can be used alone in tests.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "node/control.h"
#include "node/data_server.h"
#include "node/holdings.h"
#include "node/memory.h"

namespace mooncake::node {

struct NodeSegment {
    std::string name;  // empty: "host:port" as advertised, and "#2", "#3" … for the later ones
    std::uint64_t bytes = 0;
    MemoryFile file = {};  // without a path: memory of its own
};

struct NodeOptions {
    std::vector<NodeSegment> segments;
    std::vector<std::string> masters;  // gRPC addresses "host:port"
    std::string lane;                  // "host:port" of the master's lane, when known; masters are not asked
    std::string data_host = "0.0.0.0";
    std::uint16_t data_port = 0;  // 0: any
    std::string
        advertised_host;  // empty: data_host, or if that is a wildcard the address that faces the master
    std::string host_id;  // empty: this boot of this machine
    std::string name;     // for people; empty: the first segment's
    std::size_t data_threads = 2;
    std::size_t memory_fault_threads = 4;
    bool hugepages = false;
    std::size_t connections_max = 16'384;
    std::uint64_t peer_bytes_max = 256u << 20;
    std::string software = "mooncake-store";
    std::uint64_t connect_timeout_ms = 1'000;
    std::uint64_t request_timeout_ms = 3'000;
    std::uint64_t stall_timeout_ms = 10'000;  // payload or sending without progress
    std::uint64_t stop_timeout_ms = 2'000;    // for what is being read when it stops
    bool shared_memory = true;                // clients of this host and user may map the memory
};

struct NodeStatus {
    ControlStatus control;
    Directory::Counts counts;
    std::vector<std::string> segment_names;
    std::string data_endpoint;   // as advertised, "host:port"
    std::string local_endpoint;  // "shm://…"; empty: the memory cannot be mapped
    std::uint64_t ready_bytes = 0;
    bool fenced = true;  // no master heard for client_ttl: nothing is served
    std::string memory_error;
    std::vector<std::pair<std::string, std::uint64_t>> stats;  // of the data server
};

class Node {
  public:
    // Throws std::invalid_argument naming what is wrong with the options.
    explicit Node(NodeOptions options);
    ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // Reserves the memory, listens and begins to look for the master; does not wait for it. Throws
    // std::runtime_error (memory) or std::system_error (port), naming sizes, port and settings.
    void start();
    // Hands over what the master moves elsewhere within handover_ms (0: nothing), unmounts (at most 1 s),
    // lets reads and writes under way finish (at most stop_timeout_ms), then ends every connection.
    // Idempotent. A forked child's stop does nothing.
    void stop(std::uint64_t handover_ms = 0);
    bool wait_mounted(std::uint64_t timeout_ms);
    NodeStatus status() const;
    std::uint16_t data_port() const;  // 0 before start

    // For the doors of the same process (tests, embedded): what the data server serves from.
    const std::shared_ptr<Holdings>& holdings() const { return parts_->holdings; }

  private:
    struct Parts {
        std::shared_ptr<Holdings> holdings;
        std::unique_ptr<MemoryFaulter> faulter;
        std::unique_ptr<DataServer> server;
        std::unique_ptr<Control> control;
        std::vector<std::string> segment_names;
        std::string data_endpoint;
        std::string local_endpoint;
        std::mutex error_mutex;  // guards memory_error
        std::string memory_error;
    };
    void start_parts();
    void name_segments();
    void wait_unused();

    NodeOptions options_;
    std::vector<net::Endpoint> masters_;
    std::optional<net::Endpoint> lane_;
    std::unique_ptr<Parts> parts_;
    pid_t owner_ = 0;  // the process that started it
    bool stopped_ = false;
};

}  // namespace mooncake::node
