#include "wire/transfer.h"

namespace mooncake::wire {

void encode_transfer(std::span<const MemoryRange> ranges, Writer& writer) {
    writer.put(static_cast<std::uint32_t>(ranges.size()));
    writer.put(std::uint32_t{0});
    writer.array(ranges);
}

std::optional<TransferRequest> parse_transfer(Bytes body) {
    Reader reader(body);
    const auto count = reader.get<std::uint32_t>();
    if (reader.get<std::uint32_t>() != 0) return std::nullopt;
    TransferRequest request;
    request.ranges = reader.array<MemoryRange>(count, kBatchKeysMax);
    if (!reader.finished()) return std::nullopt;
    for (const MemoryRange& range : request.ranges) {
        const bool wraps = range.address + range.length < range.address;
        if (range.length == 0 || wraps || range.length > kValueBytesMax) return std::nullopt;
        request.payload_bytes += range.length;  // of 16,384 ranges of 2^40: no overflow
    }
    if (request.payload_bytes > kValueBytesMax) return std::nullopt;
    return request;
}

void encode(const Notice& notice, Writer& writer) {
    writer.put(static_cast<std::uint32_t>(notice.name.size()));
    writer.put(static_cast<std::uint32_t>(notice.message.size()));
    writer.bytes(as_bytes(notice.name));
    writer.bytes(as_bytes(notice.message));
}

std::optional<Notice> parse_notice(Bytes body) {
    if (body.size() > kNoticeBytesMax + 2 * sizeof(std::uint32_t)) return std::nullopt;
    Reader reader(body);
    const auto name_bytes = reader.get<std::uint32_t>();
    const auto message_bytes = reader.get<std::uint32_t>();
    Notice notice;
    notice.name = as_text(reader.bytes(name_bytes));
    notice.message = as_text(reader.bytes(message_bytes));
    if (!reader.finished()) return std::nullopt;
    return notice;
}

std::optional<MemoryRange> parse_memory_range(Bytes body) {
    Reader reader(body);
    const auto range = reader.get<MemoryRange>();
    if (!reader.finished()) return std::nullopt;
    return range;
}

}  // namespace mooncake::wire
