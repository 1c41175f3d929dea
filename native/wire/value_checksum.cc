#include "wire/value_checksum.h"

#include "wire/crc32c.h"

namespace mooncake::wire {

std::uint32_t value_checksum_seed(std::string_view tenant, std::string_view key, PutId put_id) {
    const auto tenant_bytes = static_cast<std::uint16_t>(tenant.size());
    std::uint32_t crc = crc32c(0, &tenant_bytes, sizeof(tenant_bytes));
    crc = crc32c(crc, tenant.data(), tenant.size());
    crc = crc32c(crc, key.data(), key.size());
    return crc32c(crc, &put_id, sizeof(put_id));
}

}  // namespace mooncake::wire
