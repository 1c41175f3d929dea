// The copies under way: replicas that nodes were told to fetch from others and have not answered for. Owns
// the table; Machine decides (copy_verbs.cc), for repair (repair.cc), for a node that leaves (handover.cc)
// and for tasks (task_verbs.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "metadata/object.h"
#include "wire/ids.h"

namespace mooncake::metadata {

struct Copy {
    Placed target;  // kCopying
    Placed source;  // live when it was placed; its object is guarded until the copy ends
    wire::PutId put_id = 0;
    Ref record = 0;
    std::uint64_t size = 0;
    std::uint64_t until_ms = 0;
    bool moves = false;         // the source retires once the target is live
    std::uint8_t attempts = 0;  // that failed before this one
    wire::TaskId task = 0;      // that asked for it; 0: none did
};

// Few at a time (Options::copies_max): every search is from end to end.
class Copies {
  public:
    // The target's id must be above all before it.
    void add(const Copy& copy) { all_.push_back(copy); }
    void remove(wire::ReplicaId target) {
        std::erase_if(all_, [&](const Copy& copy) { return copy.target.replica == target; });
    }
    const Copy* find(wire::ReplicaId target) const {
        for (const auto& copy : all_) {
            if (copy.target.replica == target) return &copy;
        }
        return nullptr;
    }
    // At most one a record.
    const Copy* find_record(Ref record) const {
        for (const auto& copy : all_) {
            if (copy.record == record) return &copy;
        }
        return nullptr;
    }
    const std::vector<Copy>& all() const { return all_; }  // oldest first
    std::size_t size() const { return all_.size(); }

  private:
    std::vector<Copy> all_;
};

}  // namespace mooncake::metadata
