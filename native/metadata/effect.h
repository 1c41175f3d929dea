// What the state machine wants done: the only way it acts on the world. The driver (native/master) carries
// effects out.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/ids.h"

namespace mooncake::metadata {

struct Effect {
    enum class Kind : std::uint8_t {
        kRetire,      // tell the segment's node to end this replica, until it confirms
        kAwait,       // this replica, told before, matters to who asked now: its answer waits for it, too
        kExpel,       // the segment left the pool: drop its retire queue and end its node's waiting
        kUnheard,     // a segment left without its node's agreement, which may still serve what it held
        kLostCopy,    // what was asked met a copy there, or ended it
        kEndSession,  // the session is gone: forget its connections
        kMounted,  // the segment is in the pool (session = its owner): bind it to the connection that asked
        kCopy,   // tell the node of this segment (session = its owner) to fetch replica: Metadata::copy_order
        kProbe,  // dial the segment's endpoint and tell Metadata::probed (session = its owner)
        kSpaceReturned  // bytes came back on the segment: parked puts may go on
    };
    Kind kind = Kind::kRetire;
    wire::SegmentId segment = 0;
    wire::ReplicaId replica = 0;
    wire::SessionId session = 0;
};
using Effects = std::vector<Effect>;

}  // namespace mooncake::metadata
