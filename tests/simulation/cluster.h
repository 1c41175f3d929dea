// The processes: a real master, real nodes and real clients, each on its host, started and ended as a person
// or a power cut would.
//
// Owns who runs; what is asked of the clients is the workload's (workload.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
inline constexpr std::uint16_t kDoorPort = 50'001;

struct MasterProcess {
    Host* host = nullptr;
    std::unique_ptr<mooncake::master::Master> master;
    bool is_running = false;
    std::shared_ptr<bool> is_over;  // for its door
};

struct NodeProcess {
    Host* host = nullptr;
    std::unique_ptr<mooncake::node::Node> node;
    bool is_running = false;
    std::uint64_t lives = 0;
    bool has_served = false;
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
    // Ends the process at once and starts another, of the next reign, after `down_ms`; `elsewhere`: at the
    // other address of the clients' list, if there is one and it is free. False: it was not.
    bool crash_master(bool is_told, Ms down_ms, bool elsewhere);
    // Two masters by mistake: the one stops until `until_ms`, another is started after `delay_ms`; what wakes
    // then is killed `awake_ms` later. False: there is no other address, or it is taken.
    bool take_over(Ms delay_ms, Ms until_ms, Ms awake_ms);
    // Those whose reign is over.
    void kill_old_masters();
    void start_node(std::size_t index);
    // Ends the process at once and starts another after `down_ms`. `is_told`: its host's kernel lives.
    void crash_node(std::size_t index, bool is_told, Ms down_ms);
    void start_client(std::size_t index);
    void crash_client(std::size_t index, bool is_told, Ms down_ms);
    // Orderly: clients, nodes, master. From a fiber.
    void stop();

    // The one that was started last.
    mooncake::master::Master& master() { return *masters_[current_].master; }
    Host& master_host() { return *masters_[current_].host; }
    bool has_master() const { return masters_[current_].is_running; }
    bool is_taken_over() const { return is_taken_over_; }
    bool has_old_master() const;
    // Two masters were there at some time since.
    bool had_two_masters(Ms since_ms) const {
        return has_old_master() || (last_old_ms_ && *last_old_ms_ >= since_ms);
    }
    std::vector<MasterProcess>& masters() { return masters_; }
    std::uint64_t reigns() const { return reigns_; }
    std::uint64_t takeovers() const { return takeovers_; }
    std::uint64_t node_crashes() const { return node_crashes_; }
    // A running node drops one of its values, or holds one that nobody granted. False: there is none to drop,
    // or no room.
    bool lose_record(std::size_t node);
    bool add_stray_record(std::size_t node);
    std::uint64_t lost_records() const { return lost_records_; }
    std::vector<NodeProcess>& nodes() { return nodes_; }
    std::vector<ClientProcess>& clients() { return clients_; }
    // Called with a master that ends, while it can tell what it has counted.
    std::function<void(mooncake::master::Master&)> master_ends;
    // Called when a master dies, or another takes its place.
    std::function<void()> reign_ends;
    // Called on a fiber of the client's host each time that one has connected.
    std::function<void(std::size_t)> client_started;
    // No process starts again by itself any more.
    bool is_stopping = false;

  private:
    void start_master(std::size_t index);
    void keep_tombstones(mooncake::master::Master& master, const std::shared_ptr<const bool>& is_over);
    void end_master(std::size_t index, bool is_told, Ms up_ms);
    std::optional<std::size_t> free_address() const;
    std::vector<std::string> doors() const;
    std::unique_ptr<mooncake::node::Node> make_node(std::size_t index);

    World& world_;
    Kernel& kernel_;
    const Plan& plan_;
    std::vector<MasterProcess> masters_;
    std::size_t current_ = 0;
    std::vector<NodeProcess> nodes_;
    std::vector<ClientProcess> clients_;
    std::uint64_t node_crashes_ = 0;
    std::uint64_t lost_records_ = 0;
    std::uint64_t reigns_ = 0;
    std::uint64_t takeovers_ = 0;
    std::uint64_t noted_epoch_ = 0;           // as the state file, or an election, keeps it
    mooncake::wire::Buffer kept_tombstones_;  // the same
    bool is_taken_over_ = false;              // the next master is on its way while the last one is stopped
    std::optional<Ms> last_old_ms_;           // when there were two, last
};

}  // namespace simulation
