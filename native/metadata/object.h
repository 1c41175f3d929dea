// The record of one key: a head of one cache line's size, then the key. What few objects have (more replicas,
// a TTL, a soft pin) is in a second record. Layout only; nothing here decides.
#pragma once

#include <cstdint>
#include <string_view>

#include "metadata/arena.h"
#include "wire/ids.h"

namespace mooncake::metadata {

using SegmentIndex = std::uint16_t;  // a slot of Segments; used again only when no record names it any more

enum ObjectFlags : std::uint8_t {
    kHasPut = 1,   // an unfinished put of this key is in Puts
    kHardPin = 2,  // never evicted: in no eviction order
    kSoftPin = 4,  // evicted last: in the orders for soft-pinned objects
    kGuarded = 8,  // a copy of it is being made: in no eviction order until that has ended
};

// Example: key "a" with one value and, over it, an unfinished upsert: put_id names the visible value, flags
// have kHasPut. When the upsert commits, put_id and the replicas are exchanged in place and the old replicas
// retire. When the value is removed before that, put_id is 0 and the record lives on for the put.
struct Object {
    wire::PutId put_id;  // of the visible value; 0 = none. First, so that it reads 0 in a freed record
    std::uint64_t size;
    wire::ReplicaId replica;  // the first replica; further ones are in Extra
    std::uint64_t stamp;      // what the eviction policy thought of the last access: lower goes first
    std::uint64_t lease_until_ms;
    std::uint64_t hold_until_ms;  // granted by exists
    std::uint32_t tenant;
    Ref extra;             // of an Extra, 0 = none
    SegmentIndex segment;  // of the first replica
    std::uint16_t lease_count;
    std::uint16_t key_bytes;
    std::uint8_t replica_count : 4;    // up to wire::kReplicasMax
    std::uint8_t replicas_wanted : 4;  // as its put asked: fewer are repaired
    std::uint8_t flags;

    bool is_visible() const { return put_id != 0; }
    bool has(ObjectFlags flag) const { return (flags & flag) != 0; }
    bool is_leased(std::uint64_t now_ms) const { return lease_count > 0 && lease_until_ms > now_ms; }
    // Until when readers asked for it to be kept, by lease or hold.
    std::uint64_t kept_until_ms() const {
        const std::uint64_t lease = lease_count > 0 ? lease_until_ms : 0;
        return lease > hold_until_ms ? lease : hold_until_ms;
    }
    std::string_view key() const { return {reinterpret_cast<const char*>(this + 1), key_bytes}; }
};
static_assert(sizeof(Object) == 64);

struct Placed {
    wire::ReplicaId replica = 0;
    SegmentIndex segment = 0;
};

struct Extra {
    std::uint64_t soft_pin_until_ms;
    std::uint64_t ttl_until_ms;  // 0 = none

    // As many as the object has replicas beyond the first follow.
    Placed* more() { return reinterpret_cast<Placed*>(this + 1); }
    const Placed* more() const { return reinterpret_cast<const Placed*>(this + 1); }
    static std::size_t bytes(std::size_t replica_count) {
        return sizeof(Extra) + (replica_count > 1 ? replica_count - 1 : 0) * sizeof(Placed);
    }
};
static_assert(sizeof(Extra) == 16 && sizeof(Placed) == 16);

}  // namespace mooncake::metadata
