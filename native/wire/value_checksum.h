// What a value's checksum begins with, so that the bytes of another key, tenant or put never pass for it.
#pragma once

#include <cstdint>
#include <string_view>

#include "wire/ids.h"

namespace mooncake::wire {

// CRC32C over u16 tenant length, tenant, key, u64 put_id. The value's checksum continues it over the value;
// a writer that knew the value before its put_id combines: crc32c_combine(seed, crc32c(0, value), size).
std::uint32_t value_checksum_seed(std::string_view tenant, std::string_view key, PutId put_id);

}  // namespace mooncake::wire
