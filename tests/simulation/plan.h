// What one seed draws before anything happens: how large the cluster is, how it is set up, what goes wrong
// and how often. Small numbers on purpose: room is always short and every deadline comes within seconds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "master/master.h"
#include "random.h"
#include "weather.h"

namespace simulation {

// What befalls a seed.
enum class Mix : std::uint8_t {
    kCalm,     // nothing
    kNetwork,  // bytes are lost, late, repeated; nodes are slow or not heard
    kCrashes,  // and processes of all kinds die and start again
    kMasters,  // the master above all
    kPauses,   // processes stop for a while
    kCuts,     // hosts do not reach each other
    kStorm,    // all of it
    kCount
};
inline constexpr std::array<const char*, static_cast<std::size_t>(Mix::kCount)> kMixNames{
    "calm", "network", "crashes", "masters", "pauses", "cuts", "storm"};

struct Plan {
    Mix mix = Mix::kCalm;
    std::size_t nodes = 3;
    std::size_t clients = 3;
    bool finds_lane = false;           // by asking the masters' gRPC doors; else it is told
    std::size_t master_addresses = 1;  // of the clients' list
    std::size_t callers = 3;           // threads of each client that call it
    std::vector<std::uint64_t> capacities;
    std::size_t segments_a_node = 1;
    std::size_t keys = 30;
    std::uint64_t value_bytes_max = 20'000;
    std::vector<std::uint64_t> value_sizes;   // only these, if any: a freed range fits the next value
    std::uint64_t wide_value_in_10000 = 200;  // values of several read chunks or stripes
    // Without them wrong bytes are seen as such; with them they may hide behind another replica.
    bool checksums = true;
    std::uint32_t location_cache_max = 0;
    mooncake::master::MasterOptions master;

    Ms latency_max_ms = 2;
    std::uint64_t bytes_a_ms = 50'000;
    std::vector<std::size_t> window_bytes{4'096, 32'768, 262'144,
                                          1'048'576};  // of a connection, one of these
    // In 10,000 passages, requests or turns of the fault's own clock; 0 = this seed does without.
    std::uint64_t resets = 0;
    std::uint64_t delays = 0;
    std::uint64_t repeats = 0;
    std::uint64_t client_crashes = 0;
    std::uint64_t node_crashes = 0;
    std::uint64_t master_crashes = 0;
    std::uint64_t node_silences = 0;
    std::uint64_t slow_nodes = 0;
    std::uint64_t client_pauses = 0;
    std::uint64_t node_pauses = 0;
    std::uint64_t master_pauses = 0;
    std::uint64_t partitions = 0;
    std::uint64_t takeovers = 0;
    std::uint64_t wrong_records = 0;  // of nodes: what reconcile is for

    // What a delay or a rest should end on, or beside.
    std::vector<Ms> deadlines() const;
};

Plan draw_plan(Random& random);

}  // namespace simulation
