// Works on the cores alone, without a socket: what a wall clock beside other processes could not tell.
#pragma once

#include <cstdint>

#include "works.h"

namespace mooncake::bench {

// A state machine's table grows to `keys`, one put at a time: the CPU time of the slowest steps.
Figures inserts(std::uint64_t keys);
// Random replacement of blocks from `least` to `most` bytes (their logarithms evenly spread) in a segment,
// ever fuller, until one is refused: how much of it was in use then.
Figures replacement(std::uint64_t least, std::uint64_t most, std::uint64_t segment_bytes);

}  // namespace mooncake::bench
