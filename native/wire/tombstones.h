// What is dead although some node may still hold it: what a master tells its nodes to keep, and what they
// hand to a master that starts and knows nothing. DESIGN §6: caches may be lost, removes may not.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "wire/bytes.h"
#include "wire/ids.h"
#include "wire/lane.h"

namespace mooncake::wire {

// Of each kind in one list; beyond it a master takes in nothing of earlier reigns.
inline constexpr std::size_t kTombstonesMax = 65536;
inline constexpr std::size_t kExpelledMax = 1024;

struct Tombstones {
    std::uint64_t epoch = 0;  // the reign of the master that tells this
    // Nodes that followed no reign of at least this one are too late: removes were forgotten since.
    std::uint64_t closed_epoch = 0;
    // Processes whose segments the master expelled while it could not tell them what was removed.
    std::vector<Uuid> expelled;
    // Those on which too much was removed to name it: what they hold at or below the id is dead.
    struct Floor {
        Uuid incarnation{};
        ReplicaId replica = 0;
        bool operator==(const Floor&) const = default;
    };
    std::vector<Floor> floors;
    std::vector<ReplicaId> replicas;  // of values that ended; their nodes have not freed them
    // Removed while not every node had reported: values of the key (key_digest) at or below put_id.
    struct Key {
        std::uint64_t digest = 0;
        PutId put_id = 0;
        bool operator==(const Key&) const = default;
    };
    std::vector<Key> keys;

    bool operator==(const Tombstones&) const = default;
};
static_assert(sizeof(Tombstones::Floor) == 24 && sizeof(Tombstones::Key) == 16);

// u64 epoch, u64 closed_epoch, u32 expelled, u32 floors, u32 replicas, u32 keys, then the lists in that
// order.
void encode(const Tombstones& tombstones, Writer& writer);
std::optional<Tombstones> parse_tombstones(Bytes body);

// tombstones, node to master: Prefix, then what the node keeps of another master, encoded, or nothing. The
// answer: u64 generation (as in the answers to reports), then what it is to keep from now on, encoded.
struct TombstonesRequest {
    Request request;
    std::optional<Tombstones> kept;
};
void encode_tombstones_request(const Prefix& prefix, Bytes kept, Writer& writer);
std::optional<TombstonesRequest> parse_tombstones_request(Bytes body);

void encode_tombstones_reply(std::uint64_t generation, Bytes kept, Writer& writer);
struct TombstonesReply {
    std::uint64_t generation = 0;
    Bytes kept;  // encoded; parses
};
std::optional<TombstonesReply> parse_tombstones_reply(Bytes body);

}  // namespace mooncake::wire
