#include "wire/control.h"

namespace mooncake::wire {

namespace {

// u64 number, u32 count, u32 zero, u64 ids: the shape that retire and its answer share.
void encode_numbered_ids(std::uint64_t number, std::span<const std::uint64_t> ids, Writer& writer) {
    writer.put(number);
    writer.put(static_cast<std::uint32_t>(ids.size()));
    writer.put(std::uint32_t{0});
    writer.array(ids);
}

struct NumberedIds {
    std::uint64_t number = 0;
    std::vector<std::uint64_t> ids;
};

std::optional<NumberedIds> parse_numbered_ids(Bytes body) {
    Reader reader(body);
    NumberedIds message;
    message.number = reader.get<std::uint64_t>();
    const auto count = reader.get<std::uint32_t>();
    reader.get<std::uint32_t>();
    message.ids = reader.array<std::uint64_t>(count, kReplicaIdsMax);
    if (!reader.finished()) return std::nullopt;
    return message;
}

}  // namespace

void encode_retire(std::uint64_t command_id, std::span<const ReplicaId> replicas, Writer& writer) {
    encode_numbered_ids(command_id, replicas, writer);
}

std::optional<Retire> parse_retire(Bytes body) {
    auto message = parse_numbered_ids(body);
    if (!message) return std::nullopt;
    return Retire{message->number, std::move(message->ids)};
}

void encode_retire_reply(std::uint64_t command_id, std::span<const ReplicaId> freed, Writer& writer) {
    encode_numbered_ids(command_id, freed, writer);
}

std::optional<RetireReply> parse_retire_reply(Bytes body) {
    auto message = parse_numbered_ids(body);
    if (!message) return std::nullopt;
    return RetireReply{message->number, std::move(message->ids)};
}

void encode(const Copy& copy, Writer& writer) {
    writer.put(copy.target);
    writer.put(copy.segment);
    writer.put(copy.source);
    writer.put(copy.digest);
    writer.put(copy.put_id);
    writer.put(copy.size);
    writer.put(copy.timeout_ms);
    writer.put(static_cast<std::uint8_t>(copy.endpoints.size()));
    for (const auto endpoint : copy.endpoints) writer.text16(endpoint);
}

std::optional<Copy> parse_copy(Bytes body) {
    Reader reader(body);
    Copy copy;
    copy.target = reader.get<ReplicaId>();
    copy.segment = reader.get<SegmentId>();
    copy.source = reader.get<ReplicaId>();
    copy.digest = reader.get<std::uint64_t>();
    copy.put_id = reader.get<PutId>();
    copy.size = reader.get<std::uint64_t>();
    copy.timeout_ms = reader.get<std::uint64_t>();
    const auto endpoints = reader.get<std::uint8_t>();
    if (endpoints > kEndpointsMax || copy.target == 0 || copy.source == 0 || copy.put_id == 0 ||
        copy.size > kValueBytesMax) {
        return std::nullopt;
    }
    for (std::size_t i = 0; i < endpoints; ++i) copy.endpoints.push_back(reader.text16(kNameBytesMax));
    if (!reader.finished()) return std::nullopt;
    return copy;
}

void encode(const CopyReply& reply, Writer& writer) {
    writer.put(reply.target);
    writer.put(reply.status);
    writer.put(std::uint16_t{0});
    writer.put(std::uint32_t{0});
}

std::optional<CopyReply> parse_copy_reply(Bytes body) {
    Reader reader(body);
    CopyReply reply;
    reply.target = reader.get<ReplicaId>();
    reply.status = reader.get<Status>();
    reader.bytes(6);
    if (!reader.finished()) return std::nullopt;
    return reply;
}

void encode(const DrainReply& reply, Writer& writer) {
    writer.put(reply.moved_count);
    writer.put(reply.left_count);
}

std::optional<DrainReply> parse_drain_reply(Bytes body) {
    Reader reader(body);
    DrainReply reply;
    reply.moved_count = reader.get<std::uint64_t>();
    reply.left_count = reader.get<std::uint64_t>();
    if (!reader.finished()) return std::nullopt;
    return reply;
}

void encode_report(const Prefix& prefix, std::uint64_t last_command_id, ReplicaId settled_id,
                   std::span<const SegmentReport> segments, std::span<const ReplicaId> freed,
                   Writer& writer) {
    encode_prefix(prefix, {}, writer);
    writer.put(last_command_id);
    writer.put(settled_id);
    writer.put(static_cast<std::uint32_t>(segments.size()));
    writer.put(static_cast<std::uint32_t>(freed.size()));
    writer.array(segments);
    writer.array(freed);
}

std::optional<Report> parse_report(Bytes body) {
    Reader reader(body);
    Report message;
    message.request = parse_prefix(reader);
    message.last_command_id = reader.get<std::uint64_t>();
    message.settled_id = reader.get<ReplicaId>();
    const auto segments = reader.get<std::uint32_t>();
    const auto freed = reader.get<std::uint32_t>();
    message.segments = reader.array<SegmentReport>(segments, kSegmentsAMountMax);
    message.freed = reader.array<ReplicaId>(freed, kReplicaIdsMax);
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode_report_reply(const ReportReply& reply, Writer& writer) {
    writer.put(reply.settled_id);
    writer.put(reply.tombstones_generation);
    writer.put(reply.comparison);
    writer.put(reply.compared_segment);
    writer.put(static_cast<std::uint32_t>(reply.unknown_segments.size()));
    writer.put(std::uint32_t{0});
    writer.array(std::span(reply.unknown_segments));
}

std::optional<ReportReply> parse_report_reply(Bytes body) {
    Reader reader(body);
    ReportReply reply;
    reply.settled_id = reader.get<std::uint64_t>();
    reply.tombstones_generation = reader.get<std::uint64_t>();
    reply.comparison = reader.get<std::uint64_t>();
    reply.compared_segment = reader.get<SegmentId>();
    const auto count = reader.get<std::uint32_t>();
    reader.get<std::uint32_t>();
    reply.unknown_segments = reader.array<SegmentId>(count, kSegmentsAMountMax);
    if (!reader.finished()) return std::nullopt;
    return reply;
}

void encode_holdings(const Prefix& prefix, std::uint64_t comparison, std::uint32_t flags,
                     std::span<const ReplicaId> replicas, Writer& writer) {
    encode_prefix(prefix, {}, writer);
    writer.put(comparison);
    writer.put(flags);
    writer.put(static_cast<std::uint32_t>(replicas.size()));
    writer.array(replicas);
}

std::optional<SettledHoldings> parse_holdings(Bytes body) {
    Reader reader(body);
    SettledHoldings message;
    message.request = parse_prefix(reader);
    message.comparison = reader.get<std::uint64_t>();
    message.flags = reader.get<std::uint32_t>();
    const auto count = reader.get<std::uint32_t>();
    message.replicas = reader.array<ReplicaId>(count, kReplicaIdsMax);
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode_inventory(const Prefix& prefix, std::uint32_t flags, const InventoryTotals& totals,
                      std::span<const InventoryItem> items, Bytes headers, Writer& writer) {
    encode_prefix(prefix, {}, writer);
    writer.put(flags);
    writer.put(static_cast<std::uint32_t>(items.size()));
    writer.put(totals.count);
    writer.put(totals.checksum);
    writer.array(items);
    writer.bytes(headers);
}

std::optional<Inventory> parse_inventory(Bytes body) {
    Reader reader(body);
    Inventory message;
    message.request = parse_prefix(reader);
    message.flags = reader.get<std::uint32_t>();
    const auto count = reader.get<std::uint32_t>();
    message.totals.count = reader.get<std::uint64_t>();
    message.totals.checksum = reader.get<std::uint64_t>();
    message.items = reader.array<InventoryItem>(count, kReplicaIdsMax);
    message.headers.reserve(message.items.size());
    for (const auto& item : message.items) {
        const auto header = parse_value_header(reader.bytes(item.header_bytes));
        if (!header || header->key.size() > kKeyBytesMax || item.replica == 0 || header->put_id == 0 ||
            header->size > kValueBytesMax) {
            return std::nullopt;
        }
        message.headers.push_back(*header);
    }
    if (!reader.finished()) return std::nullopt;
    return message;
}

}  // namespace mooncake::wire
