// Names that the master gives out. Both put_id and replica_id are (epoch << 40) | counter, so that an id of a
// later reign is always the higher one and no two reigns ever give the same.
#pragma once

#include <array>
#include <cstdint>

namespace mooncake::wire {

using PutId = std::uint64_t;
using ReplicaId = std::uint64_t;
using SegmentId = std::uint64_t;  // (epoch << 40) | counter too: one incarnation of one segment, never reused
using SessionId = std::uint64_t;
using TaskId = std::uint64_t;
using Uuid = std::array<std::uint8_t, 16>;  // a process's life: chosen at random by its driver

inline constexpr unsigned kCounterBits = 40;
inline constexpr std::uint64_t kCounterMax = (std::uint64_t{1} << kCounterBits) - 1;
inline constexpr std::uint64_t kEpochMax = (std::uint64_t{1} << (64 - kCounterBits)) - 1;

constexpr std::uint64_t make_id(std::uint64_t epoch, std::uint64_t counter) {
    return (epoch << kCounterBits) | counter;
}
constexpr std::uint64_t epoch_of(std::uint64_t id) { return id >> kCounterBits; }

}  // namespace mooncake::wire
