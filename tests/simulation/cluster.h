// The processes: a real master, real nodes and real clients, each on its host, started and ended as a person
// or a power cut would.
//
// Owns who runs; what is asked of the clients is the workload's (workload.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "kernel.h"
#include "master/master.h"
#include "node/node.h"
#include "plan.h"
#include "world.h"

namespace simulation {

inline constexpr std::uint16_t kLanePort = 4'000;
inline constexpr std::uint16_t kDataPort = 5'000;

struct NodeProcess {
    Host* host = nullptr;
    std::unique_ptr<mooncake::node::Node> node;
    bool is_running = false;
    std::uint64_t lives = 0;
    bool was_fenced = true;
    // Ranges of an incarnation that the master has expelled may still be read.
    std::uint64_t expulsions_seen = 0;
    bool has_leftovers = false;
    std::uint64_t draining = 0;  // ranges that were retired while somebody read them, of late
    std::uint64_t drains = 0;    // and all in all
};

struct ClientProcess {
    Host* host = nullptr;
    std::unique_ptr<mooncake::client::Client> client;
    bool is_running = false;
    std::uint64_t life = 0;
    std::size_t calls = 0;  // under way
};

class Cluster {
  public:
    Cluster(World& world, Kernel& kernel, const Plan& plan);

    void start();
    void start_master();
    // Ends the process at once and starts another, of the next reign, after `down_ms`.
    void crash_master(bool is_told, Ms down_ms);
    void start_node(std::size_t index);
    // Ends the process at once and starts another after `down_ms`. `is_told`: its host's kernel lives.
    void crash_node(std::size_t index, bool is_told, Ms down_ms);
    void start_client(std::size_t index);
    void crash_client(std::size_t index, bool is_told, Ms down_ms);
    // Orderly: clients, nodes, master. From a fiber.
    void stop();

    mooncake::master::Master& master() { return *master_; }
    Host& master_host() { return *master_host_; }
    bool has_master() const { return master_is_running_; }
    std::uint64_t reigns() const { return reigns_; }
    std::uint64_t node_crashes() const { return node_crashes_; }
    std::vector<NodeProcess>& nodes() { return nodes_; }
    // A node holds this replica and has not been told to end it.
    bool serves(mooncake::wire::ReplicaId replica);
    std::vector<ClientProcess>& clients() { return clients_; }
    // Called with what a master that ends has counted.
    std::function<void()> master_ends;
    // Called on a fiber of the client's host each time that one has connected.
    std::function<void(std::size_t)> client_started;
    // No process starts again by itself any more.
    bool is_stopping = false;

  private:
    std::unique_ptr<mooncake::node::Node> make_node(std::size_t index);

    World& world_;
    Kernel& kernel_;
    const Plan& plan_;
    Host* master_host_ = nullptr;
    std::unique_ptr<mooncake::master::Master> master_;
    std::vector<NodeProcess> nodes_;
    std::vector<ClientProcess> clients_;
    std::uint64_t node_crashes_ = 0;
    std::uint64_t reigns_ = 0;
    bool master_is_running_ = false;
};

}  // namespace simulation
