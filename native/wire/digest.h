// Digests of keys that travel on the wire.
//
// Owns xxHash64 and the one way a (tenant, key) becomes 64 bits; both ends of a connection compute it, so it
// never changes within a protocol version. Must not know tables, shards or who compares digests. Not for hash
// tables that an attacker fills (it is unkeyed), nor a proof of equality.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mooncake::wire {

/// xxHash64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), written from its description.
[[nodiscard]] uint64_t xxh64(const void* data, size_t size, uint64_t seed) noexcept;

/// What a read names beside a replica_id, so that a stale location cannot answer for another key:
/// xxh64(key, seed = xxh64(tenant, seed = 0)).
[[nodiscard]] uint64_t key_digest(std::string_view tenant, std::string_view key) noexcept;

}  // namespace mooncake::wire
