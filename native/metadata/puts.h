// The unfinished puts: what put_start placed and no put_end, revoke or reaper has ended. Owns the table and
// its order; Machine decides.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "metadata/flat_map.h"
#include "metadata/object.h"
#include "metadata/sessions.h"
#include "wire/ids.h"
#include "wire/limits.h"

namespace mooncake::metadata {

using PutIndex = std::uint32_t;  // 0 = none

struct Put {
    wire::PutId put_id = 0;  // 0: the slot is free
    wire::SessionId session = 0;
    std::uint64_t started_ms = 0;
    std::uint64_t size = 0;
    std::uint64_t ttl_ms = 0;
    std::uint32_t soft_pin_ms = 0;
    Ref record = 0;
    std::uint8_t pins = 0;  // kHardPin, kSoftPin
    bool keeps_soft_pin = false;
    std::uint8_t replica_count = 0;
    std::uint8_t replicas_wanted = 0;
    std::array<Placed, wire::kReplicasMax> replicas{};

    PutIndex older = 0, newer = 0;                    // all unfinished puts, by put_id
    PutIndex session_previous = 0, session_next = 0;  // those of the same session
};

class Puts {
  public:
    Put& at(PutIndex index) { return slots_[index]; }
    const Put& at(PutIndex index) const { return slots_[index]; }
    PutIndex find(wire::PutId put_id) const {
        const auto* index = by_id_.find(put_id);
        return index == nullptr ? 0 : *index;
    }
    PutIndex find_record(Ref record) const {
        const auto* index = by_record_.find(record);
        return index == nullptr ? 0 : *index;
    }

    // The put_id must be above all before it.
    PutIndex add(Put put, Session& session);
    void remove(PutIndex index, Session& session);

    PutIndex oldest() const { return oldest_; }
    std::size_t size() const { return by_id_.size(); }
    std::size_t slot_count() const { return slots_.size(); }  // index 0 is never used
    std::size_t bytes() const {
        return slots_.capacity() * sizeof(Put) + by_id_.bytes() + by_record_.bytes();
    }

  private:
    std::vector<Put> slots_{1};
    std::vector<PutIndex> free_;
    FlatMap<PutIndex> by_id_;
    FlatMap<PutIndex> by_record_;
    PutIndex oldest_ = 0;
    PutIndex newest_ = 0;
};

}  // namespace mooncake::metadata
