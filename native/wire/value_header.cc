#include "wire/value_header.h"

namespace mooncake::wire {

void encode(const ValueHeader& header, Writer& writer) {
    writer.put(header.put_id);
    writer.put(header.size);
    writer.put(header.ttl_ms);
    writer.put(header.parent_digest);
    writer.put(header.soft_pin_ms);
    writer.put(header.checksum);
    writer.put(header.flags);
    writer.put(header.replica_count);
    writer.text16(header.tenant);
    writer.text16(header.key);
    writer.text16(header.user_metadata);
}

std::optional<ValueHeader> parse_value_header(Bytes bytes) {
    Reader reader(bytes);
    ValueHeader header;
    header.put_id = reader.get<PutId>();
    header.size = reader.get<std::uint64_t>();
    header.ttl_ms = reader.get<std::uint64_t>();
    header.parent_digest = reader.get<std::uint64_t>();
    header.soft_pin_ms = reader.get<std::uint32_t>();
    header.checksum = reader.get<std::uint32_t>();
    header.flags = reader.get<std::uint8_t>();
    header.replica_count = reader.get<std::uint8_t>();
    header.tenant = reader.text16(kTenantBytesMax);
    header.key = reader.text16(kKeyBytesMax);
    header.user_metadata = reader.text16(kUserMetadataBytesMax);
    if (!reader.finished() || header.key.empty()) return std::nullopt;
    return header;
}

}  // namespace mooncake::wire
