// What must stay dead although some node may still hold it, beyond what the state machine remembers while it
// lives: told to the nodes (and kept by the driver on disk) for the master that comes after this one.
//
// Owns what earlier reigns left (until the rebuild is over), what was removed during the rebuild, expelled
// processes and the last list told. Replicas whose retire is under way are the segments' (Segment::Ended).
// Must not know: keys' records, sessions, what is done with a dead value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "metadata/flat_map.h"
#include "wire/ids.h"
#include "wire/tombstones.h"

namespace mooncake::metadata {

class Tombstones {
  public:
    // From a node or the driver's file: false, where it is more than can be kept.
    bool restore(const wire::Tombstones& told, std::uint64_t epoch);
    // A node or a list shows that some master reigned in that epoch.
    void met_epoch(std::uint64_t epoch) { met_epoch_ = std::max(met_epoch_, epoch); }
    bool has_met_anybody() const { return met_epoch_ > 0; }
    // Values of this key at or below put_id are dead.
    enum class Noted : std::uint8_t { kNew, kKnown, kNoRoom };
    Noted note_key(std::uint64_t digest, wire::PutId put_id);
    // A process left the pool that may come back with what it holds. False: the oldest was forgotten, and
    // whatever is not in the pool now must never be taken in again.
    bool note_expelled(const wire::Uuid& incarnation);
    // Nothing of an earlier reign is taken in any more, here or by whoever comes after.
    void close(std::uint64_t epoch);
    void raise_closed(std::uint64_t epoch) { closed_epoch_ = std::max(closed_epoch_, epoch); }
    bool is_expelled(const wire::Uuid& incarnation) const;

    // Whether anything here can end what a node tells, or told already.
    bool judges() const { return has_restored_ || keys_.size() > 0; }
    bool is_too_late(std::uint64_t known_epoch, const wire::Uuid& incarnation) const;
    bool is_dead(wire::ReplicaId replica, const wire::Uuid& incarnation) const;
    bool is_dead_key(std::uint64_t digest, wire::PutId put_id) const;

    // The list for nodes and the file: what is known here, with the segments' part given.
    wire::Tombstones list(wire::Tombstones segments_part) const;
    std::size_t size() const { return restored_.size() + keys_.size() + expelled_.size() + floors_.size(); }

  private:
    std::uint64_t closed_epoch_ = 0;
    std::deque<wire::Uuid> expelled_;
    std::vector<wire::Tombstones::Floor> floors_;
    std::uint64_t met_epoch_ = 0;  // the latest that anybody knew
    FlatMap<bool> restored_;       // replicas
    FlatMap<wire::PutId> keys_;
    bool has_restored_ = false;
};

}  // namespace mooncake::metadata
