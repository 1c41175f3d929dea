// The life of a replica as data: every status, every event, and the only moves between them.
#pragma once

#include <array>
#include <cstdint>

namespace mooncake::metadata {

enum class ReplicaStatus : std::uint8_t {
    kNone,        // no id yet, or for good no more
    kUnfinished,  // placed by a put_start: charged, in Puts
    kLive,        // committed: charged, in its Object, readable
    kRetiring,    // told to go: charged until the node reports its range freed, in Retiring
    kCopying,     // placed by a copy: charged, in Copies
};
inline constexpr std::size_t kReplicaStatuses = 5;

enum class ReplicaEvent : std::uint8_t {
    kPlaced,      // put_start
    kCommitted,   // put_end: written whole
    kFailed,      // put_end: not written, or not named
    kRevoked,     // put_revoke, a session that ended, or a put_start in its place
    kReaped,      // unfinished for put_start_release_ms
    kSuperseded,  // a newer value of the key committed
    kRemoved,     // remove
    kEvicted,     // eviction
    kExpired,     // the value's TTL ended
    kFreed,       // the node gave the range back
    kExpelled,    // its segment left the pool
    kAdopted,     // a node held it from an earlier reign
    kCopyPlaced,  // a copy of a live replica is to be made here
    kCopied,      // its node has it whole
    kCopyFailed,  // it has not, not in time, or nobody needs it any more
    kMoved,       // it was copied to another segment in order to go
    kForgotten,   // its node does not hold it
};

struct ReplicaTransition {
    ReplicaStatus from;
    ReplicaEvent event;
    ReplicaStatus to;
};

inline constexpr std::array kReplicaTransitions{
    ReplicaTransition{ReplicaStatus::kNone, ReplicaEvent::kPlaced, ReplicaStatus::kUnfinished},
    ReplicaTransition{ReplicaStatus::kNone, ReplicaEvent::kAdopted, ReplicaStatus::kLive},
    ReplicaTransition{ReplicaStatus::kNone, ReplicaEvent::kCopyPlaced, ReplicaStatus::kCopying},
    ReplicaTransition{ReplicaStatus::kCopying, ReplicaEvent::kCopied, ReplicaStatus::kLive},
    ReplicaTransition{ReplicaStatus::kCopying, ReplicaEvent::kCopyFailed, ReplicaStatus::kRetiring},
    ReplicaTransition{ReplicaStatus::kCopying, ReplicaEvent::kExpelled, ReplicaStatus::kNone},
    ReplicaTransition{ReplicaStatus::kUnfinished, ReplicaEvent::kCommitted, ReplicaStatus::kLive},
    ReplicaTransition{ReplicaStatus::kUnfinished, ReplicaEvent::kFailed, ReplicaStatus::kRetiring},
    ReplicaTransition{ReplicaStatus::kUnfinished, ReplicaEvent::kRevoked, ReplicaStatus::kRetiring},
    ReplicaTransition{ReplicaStatus::kUnfinished, ReplicaEvent::kReaped, ReplicaStatus::kRetiring},
    ReplicaTransition{ReplicaStatus::kUnfinished, ReplicaEvent::kSuperseded, ReplicaStatus::kRetiring},
    ReplicaTransition{ReplicaStatus::kUnfinished, ReplicaEvent::kExpelled, ReplicaStatus::kNone},
    ReplicaTransition{ReplicaStatus::kLive, ReplicaEvent::kSuperseded, ReplicaStatus::kRetiring},
    ReplicaTransition{ReplicaStatus::kLive, ReplicaEvent::kRemoved, ReplicaStatus::kRetiring},
    ReplicaTransition{ReplicaStatus::kLive, ReplicaEvent::kEvicted, ReplicaStatus::kRetiring},
    ReplicaTransition{ReplicaStatus::kLive, ReplicaEvent::kExpired, ReplicaStatus::kRetiring},
    ReplicaTransition{ReplicaStatus::kLive, ReplicaEvent::kMoved, ReplicaStatus::kRetiring},
    ReplicaTransition{ReplicaStatus::kLive, ReplicaEvent::kExpelled, ReplicaStatus::kNone},
    ReplicaTransition{ReplicaStatus::kLive, ReplicaEvent::kForgotten, ReplicaStatus::kNone},
    ReplicaTransition{ReplicaStatus::kRetiring, ReplicaEvent::kFreed, ReplicaStatus::kNone},
    ReplicaTransition{ReplicaStatus::kRetiring, ReplicaEvent::kExpelled, ReplicaStatus::kNone},
};

// The row of the table, or nullptr: such a move would be a bug of ours.
constexpr const ReplicaTransition* replica_transition(ReplicaStatus from, ReplicaEvent event) {
    for (const auto& row : kReplicaTransitions) {
        if (row.from == from && row.event == event) return &row;
    }
    return nullptr;
}

// Whether a replica that ended so must never be read again, whatever becomes of this master. An evicted one
// may come back: that is a hit of a value that was put. A TTL is known to the node.
constexpr bool ends_for_good(ReplicaEvent event) {
    return event == ReplicaEvent::kFailed || event == ReplicaEvent::kRevoked ||
           event == ReplicaEvent::kReaped || event == ReplicaEvent::kSuperseded ||
           event == ReplicaEvent::kRemoved || event == ReplicaEvent::kCopyFailed ||
           event == ReplicaEvent::kMoved;
}

// Whether it went with its node, or by the node's fault: nobody wanted it gone.
constexpr bool was_lost(ReplicaEvent event) {
    return event == ReplicaEvent::kExpelled || event == ReplicaEvent::kForgotten;
}

}  // namespace mooncake::metadata
