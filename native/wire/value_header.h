// What a node keeps beside a value, and all that a rebuild of the index needs. The writer composes it from
// its put and the master's grant and sends it with the value; the node stores it in its directory (on disk:
// in the record).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "wire/bytes.h"
#include "wire/ids.h"
#include "wire/limits.h"

namespace mooncake::wire {

enum ValueFlags : std::uint8_t {
    kValueHardPin = 1,
    kValueSoftPin = 2,
    kValueHasChecksum = 4,
};

struct ValueHeader {
    PutId put_id = 0;
    std::uint64_t size = 0;
    std::uint64_t ttl_ms = 0;         // what remains when the header is written or reported; 0 = no TTL
    std::uint64_t parent_digest = 0;  // key_digest of the block before it; 0 = none
    std::uint32_t soft_pin_ms = 0;    // what remains
    std::uint32_t checksum = 0;  // CRC32C over tenant, key and put_id (value_checksum_seed), then the value
    std::uint8_t flags = 0;      // ValueFlags
    std::uint8_t replica_count = 1;  // copies the writer asked for
    std::string_view tenant;
    std::string_view key;
    std::string_view user_metadata;  // opaque: the client keeps dtype and shape here
};
void encode(const ValueHeader& header, Writer& writer);
std::optional<ValueHeader> parse_value_header(Bytes bytes);

// The largest encoding: what a write's descriptor may claim.
inline constexpr std::size_t kValueHeaderBytesMax =
    64 + kTenantBytesMax + kKeyBytesMax + kUserMetadataBytesMax;

}  // namespace mooncake::wire
