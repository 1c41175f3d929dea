// What a node is told in order to make one copy; the driver packs it (wire::encode_copy).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/ids.h"

namespace mooncake::metadata {

struct CopyOrder {
    wire::ReplicaId target = 0;
    wire::SegmentId segment = 0;
    wire::ReplicaId source = 0;
    std::uint64_t digest = 0;
    wire::PutId put_id = 0;
    std::uint64_t size = 0;
    std::uint64_t timeout_ms = 0;
    std::vector<std::string> endpoints;  // of the source's segment
};

}  // namespace mooncake::metadata
