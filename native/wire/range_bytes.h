// What a value costs on a segment: the one formula by which the master charges and the node allocates.
#pragma once

#include <cstdint>

#include "wire/lane.h"

namespace mooncake::wire {

inline constexpr std::uint64_t kDramAlignmentBytes = 64;   // a cache line; the header is in the directory
inline constexpr std::uint64_t kSsdAlignmentBytes = 4096;  // O_DIRECT; the record's header is one more block

// The length of the range that holds a value of `size` bytes (at most kValueBytesMax). An empty value has a
// range too, so that every replica has one.
constexpr std::uint64_t range_bytes(std::uint64_t size, Tier tier) {
    const auto rounded = [](std::uint64_t bytes, std::uint64_t alignment) {
        return (bytes + alignment - 1) / alignment * alignment;
    };
    if (tier == Tier::kSsd) return rounded(size, kSsdAlignmentBytes) + kSsdAlignmentBytes;
    return rounded(size == 0 ? 1 : size, kDramAlignmentBytes);
}

}  // namespace mooncake::wire
