// Replicas that were told to go and whose range the node has not reported freed: still charged.
#pragma once

#include <array>
#include <cstdint>

#include "metadata/flat_map.h"
#include "metadata/object.h"
#include "wire/control.h"
#include "wire/ids.h"

namespace mooncake::metadata {

// In shards, because a mass eviction puts a million here and no growth may take long.
class Retiring {
  public:
    struct Entry {
        std::uint64_t bytes = 0;
        SegmentIndex segment = 0;
        std::uint64_t subject : 48;  // of CopyEvents of its key; 0 = not known
    };
    static_assert(sizeof(Entry) == 16);

    const Entry* find(wire::ReplicaId replica) const { return shards_[shard_index(replica)].find(replica); }
    void insert(wire::ReplicaId replica, Entry entry) {
        shards_[shard_index(replica)].insert(replica, entry);
        ++size_;
    }
    void erase(wire::ReplicaId replica) {
        if (shards_[shard_index(replica)].erase(replica)) --size_;
    }

    std::size_t size() const { return size_; }
    // As FlatMap::visit_some, over all shards.
    template <class Visit>
    std::uint64_t visit_some(std::uint64_t from, std::size_t count, Visit&& visit) const {
        const std::size_t index = from >> 32;
        const std::size_t next = shards_[index].visit_some(from & 0xFFFFFFFF, count, visit);
        if (next != 0) return std::uint64_t{index} << 32 | next;
        return index + 1 < shards_.size() ? std::uint64_t{index + 1} << 32 : 0;
    }
    template <class Visit>
    void visit_all(Visit&& visit) const {
        for (const auto& map : shards_) map.visit_all(visit);
    }

  private:
    static std::size_t shard_index(wire::ReplicaId replica) { return wire::mix64(replica) >> 58; }

    std::array<FlatMap<Entry>, 64> shards_;
    std::size_t size_ = 0;
};

}  // namespace mooncake::metadata
