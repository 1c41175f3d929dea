// What one segment's node holds, being compared with what the state machine believes: the search for the
// replicas by which they differ. Owns its progress; Machine decides (reconcile.cc).
//
//     kIdle ─► kGathering ─► kListing ─► kForgetting ─► kIdle
//              the index      the node    what it did
//              is walked      lists       not name goes
#pragma once

#include <array>
#include <cstdint>

#include "metadata/flat_map.h"
#include "metadata/object.h"
#include "wire/control.h"
#include "wire/ids.h"

namespace mooncake::metadata {

struct Comparison {
    enum class Phase : std::uint8_t { kIdle, kGathering, kListing, kForgetting };
    // A live replica at or below settled_id on that segment, and its object.
    struct Expected {
        wire::PutId put_id = 0;
        Ref record = 0;
        bool is_named = false;
    };

    Phase phase = Phase::kIdle;
    SegmentIndex index = 0;
    std::uint64_t number = 0;
    wire::SegmentId segment = 0;
    wire::SessionId node = 0;
    wire::ReplicaId settled_id = 0;
    std::uint64_t until_ms = 0;       // for the node's next chunk
    std::uint64_t search_cursor = 0;  // of the index
    std::size_t shard = 0;            // of expected, and the position in it: what was looked through
    std::size_t position = 0;
    std::uint64_t orphans = 0;
    std::uint64_t ghosts = 0;
    // As many as the segment has live replicas; in shards, so that no growth takes long.
    std::array<FlatMap<Expected>, 64> expected;

    FlatMap<Expected>& shard_of(wire::ReplicaId replica) { return expected[wire::mix64(replica) >> 58]; }
    bool awaits_list_of(wire::SessionId session) const { return phase == Phase::kListing && node == session; }
};

}  // namespace mooncake::metadata
