// The works that a master is measured by, each over its lane: what they did and what the master's process
// used for it. Knows nothing of targets: benchmarks/master.py does.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "peer.h"

namespace mooncake::bench {

using Figures = std::vector<std::pair<std::string, double>>;

struct Master {
    Target target;
    int pid = 0;
};

// Puts keys [from, from + count) of 64 KiB, a thousand a batch.
Figures fill(const Master& master, std::uint64_t from, std::uint64_t count);
// exists or lookup of 1,000 random keys of the first `table`, one batch after the other.
Figures batches(const Master& master, wire::Verb verb, std::uint64_t table, std::size_t count);
// exists of one key, `depth` under way on each connection, for so long.
Figures singles(const Master& master, std::size_t connections, std::size_t depth, std::uint64_t table,
                std::uint64_t ms);

enum class Crowd : std::uint8_t { kNobody, kBatches, kEviction, kScan, kInventory };
// Latency of exists of one key while the crowd works for `ms`, or until it is done.
Figures others(const Master& master, Crowd crowd, std::uint64_t table, std::uint64_t ms);
// What the master's process uses in so long, as cores, with nothing but what is connected already.
Figures idle(const Master& master, std::uint64_t ms);

}  // namespace mooncake::bench
