// What no policy can do better, of a trace that is known to its end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "replay/replay.h"

namespace mooncake::replay {

// Keeps, of what it holds and what a request brought, the blocks that are asked for again soonest (Belady's
// choice): no policy has more block hits in `capacity_blocks`. 0: a cache without an end. Takes the trace
// first, then its requests in order.
class Bound {
  public:
    // blocks: of all requests, one after the other; numbers below 2^32 - 1.
    Bound(std::span<const std::uint32_t> blocks, std::uint64_t capacity_blocks);

    void request(std::span<const std::uint32_t> blocks);
    const Score& score() const { return score_; }
    std::uint64_t accesses_left() const { return next_.size() - score_.accesses; }

  private:
    struct Held {
        std::uint64_t next;  // the access that asks for it again
        std::uint32_t block;

        bool operator<(const Held& other) const { return next < other.next; }  // the top is the last
    };
    void drop_last();

    std::uint64_t capacity_;
    std::vector<std::uint64_t> next_;  // by access: when the same block is asked for again
    std::vector<std::uint64_t> due_;   // by block: as the newest access of it has it; 0: not held
    std::vector<Held> heap_;  // with entries of blocks that were asked for since, which count no more
    std::uint64_t held_count_ = 0;
    Score score_;
};

}  // namespace mooncake::replay
