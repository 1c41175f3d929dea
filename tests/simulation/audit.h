// What must hold after every step: each core's own invariants, and that the master charges at least what the
// nodes hold.
#pragma once

#include <string>
#include <vector>

#include "cluster.h"
#include "history.h"

namespace simulation {

class Audit {
  public:
    explicit Audit(Cluster& cluster) : cluster_(cluster) {}

    // After a step of this host (nullptr: of the network, which changes nothing here).
    void after_step(const Host* host);
    // At rest the master charges exactly what the nodes hold.
    void check_charges_at_rest() { check_charges(true); }
    // Nothing is stored, charged, read, waited for or queued any more.
    void check_empty();
    void check_no_unfinished_put();
    Losses losses();
    // What the last master has counted stays counted.
    void reign_ends();
    // Why a key is not there, as the last master says.
    mooncake::wire::Absence why(const std::string& key);
    std::uint64_t master_count(const std::string& name);

  private:
    void check_node(NodeProcess& process);
    void check_charges(bool exactly);
    bool keep_session();

    Cluster& cluster_;
    void add_counts(Losses& losses);
    std::uint64_t fences_ = 0;
    std::uint64_t give_ups_ = 0;
    Losses past_;
    mooncake::wire::SessionId session_ = 0;
    Ms heartbeat_ms_ = 0;
    std::uint64_t reign_ = 0;
};

}  // namespace simulation
