// The implementations of CRC-32C for one kind of processor each; private to crc32c.cc.
//
// Each translation unit asks the running processor what it can do. Must not know which one gets chosen.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "wire/crc32c.h"

namespace mooncake::wire {

/// Copies chunk by chunk, each checksummed while it is still in the first-level cache (32 KiB and more).
template <auto kUpdate>
uint32_t copy_in_chunks(uint32_t state, uint8_t* to, const uint8_t* from, size_t size) noexcept {
    constexpr size_t kChunkBytes = size_t{16} << 10;
    while (size > 0) {
        const size_t chunk = std::min(size, kChunkBytes);
        std::memcpy(to, from, chunk);
        state = kUpdate(state, to, chunk);
        to += chunk;
        from += chunk;
        size -= chunk;
    }
    return state;
}

/// Room for every implementation of one processor family and the portable one.
inline constexpr size_t kCrc32cImplementationsMax = 8;

/// Writes the implementations that this processor can run to `found`, slowest first; returns their count.
/// Answers 0 on a processor family without one.
size_t find_processor_crc32c(std::span<Crc32cImplementation> found) noexcept;

}  // namespace mooncake::wire
