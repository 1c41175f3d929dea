// Bounds that every parser applies before it trusts a number from the network. proto/FRAMES.md quotes them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mooncake::wire {

inline constexpr std::size_t kKeyBytesMax = 1024;
inline constexpr std::size_t kTenantBytesMax = 255;
inline constexpr std::size_t kNameBytesMax = 255;  // segment names, host ids, endpoints
inline constexpr std::size_t kUserMetadataBytesMax = 128;
inline constexpr std::size_t kBatchKeysMax = 16384;      // keys a request; the client cuts longer batches
inline constexpr std::size_t kBodyBytesMax = 16u << 20;  // a frame's body (descriptors, never values)
inline constexpr std::size_t kHelloBytesMax = 4096;      // the first frame's body
inline constexpr std::size_t kAuthBytesMax = 2048;
inline constexpr std::uint64_t kChunkBytesMax = 8u << 20;  // payload of one reply frame of a read
inline constexpr std::uint64_t kValueBytesMax = std::uint64_t{1} << 40;
inline constexpr std::size_t kReplicasMax = 8;  // copies of one object
inline constexpr std::size_t kSegmentsAMountMax = 64;
inline constexpr std::size_t kEndpointsMax = 8;  // ways to reach one segment
inline constexpr std::size_t kAvoidMax = 1024;   // segments a client may call unreachable in one request
inline constexpr std::size_t kPreferredMax = 16;
inline constexpr std::size_t kReplicaIdsMax = 65536;  // ids in one retire, report or release

}  // namespace mooncake::wire
