#include "wire/lane.h"

namespace mooncake::wire {

namespace {

// u32 count within max, or a failed reader and 0.
std::uint32_t bounded_count(Reader& reader, std::size_t max) {
    const auto count = reader.get<std::uint32_t>();
    if (count > max) reader.fail();
    return reader.ok() ? count : 0;
}

void encode_description(const SegmentDescription& segment, Writer& writer) {
    writer.put(segment.tier);
    writer.put(static_cast<std::uint8_t>(segment.endpoints.size()));
    writer.put(segment.capacity_bytes);
    writer.put(segment.incarnation);
    writer.text16(segment.name);
    writer.text16(segment.host_id);
    for (const auto endpoint : segment.endpoints) writer.text16(endpoint);
}

SegmentDescription parse_description(Reader& reader) {
    SegmentDescription segment;
    segment.tier = reader.get<Tier>();
    const auto endpoint_count = reader.get<std::uint8_t>();
    segment.capacity_bytes = reader.get<std::uint64_t>();
    segment.incarnation = reader.get<Uuid>();
    segment.name = reader.text16(kNameBytesMax);
    segment.host_id = reader.text16(kNameBytesMax);
    if (endpoint_count > kEndpointsMax) reader.fail();
    for (std::size_t i = 0; reader.ok() && i < endpoint_count; ++i) {
        segment.endpoints.push_back(reader.text16(kNameBytesMax));
    }
    return segment;
}

}  // namespace

void encode_prefix(const Prefix& prefix, std::span<const SegmentId> avoid, Writer& writer) {
    Prefix counted = prefix;
    counted.avoid_count = static_cast<std::uint32_t>(avoid.size());
    writer.put(counted);
    writer.array(avoid);
}

Request parse_prefix(Reader& reader) {
    Request request;
    request.prefix = reader.get<Prefix>();
    if (request.prefix.avoid_count > kAvoidMax) reader.fail();
    request.avoid = AvoidList(reader.bytes(reader.ok() ? std::size_t{request.prefix.avoid_count} * 8 : 0));
    return request;
}

void encode(const OpenSession& message, Writer& writer) {
    writer.put(message.process);
    writer.text16(message.name);
    writer.text16(message.host_id);
    writer.text16(message.tenant);
}

std::optional<OpenSession> parse_open_session(Bytes body) {
    Reader reader(body);
    OpenSession message;
    message.process = reader.get<Uuid>();
    message.name = reader.text16(kNameBytesMax);
    message.host_id = reader.text16(kNameBytesMax);
    message.tenant = reader.text16(kTenantBytesMax);
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode_heartbeat(const Prefix& prefix, std::span<const SegmentId> avoid,
                      std::span<const PeerFailure> failures, Writer& writer) {
    encode_prefix(prefix, avoid, writer);
    writer.array(failures);
}

std::optional<Heartbeat> parse_heartbeat(Bytes body) {
    Reader reader(body);
    Heartbeat message;
    message.request = parse_prefix(reader);
    message.failures = reader.bytes(reader.remaining());
    if (!reader.finished()) return std::nullopt;
    if (!message.failures.empty() && message.failures.size() != message.request.avoid.count()) {
        return std::nullopt;
    }
    return message;
}

void encode(const OpenSessionReply& message, Writer& writer) {
    writer.put(message.session);
    writer.put(message.epoch);
    writer.put(message.master);
    writer.put(message.client_ttl_ms);
    writer.put(message.heartbeat_interval_ms);
    writer.put(message.lease_ttl_ms);
    writer.put(message.exists_hold_ms);
}

std::optional<OpenSessionReply> parse_open_session_reply(Bytes body) {
    Reader reader(body);
    OpenSessionReply message;
    message.session = reader.get<SessionId>();
    message.epoch = reader.get<std::uint64_t>();
    message.master = reader.get<Uuid>();
    message.client_ttl_ms = reader.get<std::uint32_t>();
    message.heartbeat_interval_ms = reader.get<std::uint32_t>();
    message.lease_ttl_ms = reader.get<std::uint32_t>();
    message.exists_hold_ms = reader.get<std::uint32_t>();
    if (!reader.finished() || message.epoch > kEpochMax) return std::nullopt;
    return message;
}

void encode_mount(const Prefix& prefix, const MountOrigin& origin,
                  std::span<const SegmentDescription> segments, Writer& writer) {
    encode_prefix(prefix, {}, writer);
    writer.put(origin.known_epoch);
    writer.put(origin.known_master);
    writer.put(origin.flags);
    writer.put(static_cast<std::uint32_t>(segments.size()));
    for (const auto& segment : segments) encode_description(segment, writer);
}

std::optional<Mount> parse_mount(Bytes body) {
    Reader reader(body);
    Mount message;
    message.request = parse_prefix(reader);
    message.origin.known_epoch = reader.get<std::uint64_t>();
    message.origin.known_master = reader.get<Uuid>();
    message.origin.flags = reader.get<std::uint32_t>();
    const auto count = bounded_count(reader, kSegmentsAMountMax);
    for (std::uint32_t i = 0; reader.ok() && i < count; ++i)
        message.segments.push_back(parse_description(reader));
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode_mount_reply(std::span<const MountAnswer> answers, Writer& writer) {
    writer.put(static_cast<std::uint32_t>(answers.size()));
    for (const auto& answer : answers) {
        writer.put(answer.status);
        writer.put(std::uint16_t{0});
        writer.put(std::uint32_t{0});
        writer.put(answer.segment);
    }
}

std::optional<std::vector<MountAnswer>> parse_mount_reply(Bytes body) {
    Reader reader(body);
    std::vector<MountAnswer> answers(bounded_count(reader, kSegmentsAMountMax));
    for (auto& answer : answers) {
        answer.status = reader.get<Status>();
        reader.get<std::uint16_t>();
        reader.get<std::uint32_t>();
        answer.segment = reader.get<SegmentId>();
    }
    if (!reader.finished()) return std::nullopt;
    return answers;
}

void encode_segment_ids(const Prefix& prefix, std::span<const SegmentId> ids, Writer& writer) {
    encode_prefix(prefix, {}, writer);
    writer.put(static_cast<std::uint32_t>(ids.size()));
    writer.array(ids);
}

std::optional<SegmentIds> parse_segment_ids(Bytes body) {
    Reader reader(body);
    SegmentIds message;
    message.request = parse_prefix(reader);
    const auto count = reader.get<std::uint32_t>();
    message.ids = reader.array<SegmentId>(count, kBatchKeysMax);
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode_segments_reply(std::span<const SegmentInfo> segments, Writer& writer) {
    writer.put(static_cast<std::uint32_t>(segments.size()));
    for (const auto& info : segments) {
        writer.put(info.status);
        writer.put(info.segment);
        writer.put(info.owner);
        writer.put(info.charged_bytes);
        writer.put(info.retiring_bytes);
        writer.put(info.replica_count);
        encode_description(info.description, writer);
    }
}

std::optional<std::vector<SegmentInfo>> parse_segments_reply(Bytes body) {
    Reader reader(body);
    std::vector<SegmentInfo> segments;
    const auto count = bounded_count(reader, kBatchKeysMax);
    for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
        SegmentInfo info;
        info.status = reader.get<Status>();
        info.segment = reader.get<SegmentId>();
        info.owner = reader.get<SessionId>();
        info.charged_bytes = reader.get<std::uint64_t>();
        info.retiring_bytes = reader.get<std::uint64_t>();
        info.replica_count = reader.get<std::uint64_t>();
        info.description = parse_description(reader);
        segments.push_back(std::move(info));
    }
    if (!reader.finished()) return std::nullopt;
    return segments;
}

void encode_keys_request(const Prefix& prefix, std::span<const SegmentId> avoid,
                         std::span<const std::string_view> keys, Writer& writer,
                         std::span<const std::uint32_t> read_counts) {
    encode_prefix(prefix, avoid, writer);
    encode_keys(keys, writer);
    writer.array(read_counts);
}

std::optional<KeysRequest> parse_keys_request(Bytes body) {
    Reader reader(body);
    KeysRequest message;
    message.request = parse_prefix(reader);
    message.keys = KeyList::parse(reader);
    if ((message.request.prefix.flags & kReadBefore) != 0)
        message.read_counts = reader.bytes(message.keys.count() * sizeof(std::uint32_t));
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode_statuses(std::span<const Status> statuses, Writer& writer) {
    writer.put(static_cast<std::uint32_t>(statuses.size()));
    writer.array(statuses);
}

std::optional<std::vector<Status>> parse_statuses(Bytes body) {
    Reader reader(body);
    const auto count = reader.get<std::uint32_t>();
    auto statuses = reader.array<Status>(count, kBatchKeysMax);
    if (!reader.finished()) return std::nullopt;
    return statuses;
}

void encode_why_reply(std::span<const WhyRecord> records, Writer& writer) {
    writer.put(static_cast<std::uint32_t>(records.size()));
    writer.put(std::uint32_t{0});
    writer.array(records);
}

std::optional<std::vector<WhyRecord>> parse_why_reply(Bytes body) {
    Reader reader(body);
    const auto count = reader.get<std::uint32_t>();
    reader.get<std::uint32_t>();
    auto records = reader.array<WhyRecord>(count, kBatchKeysMax);
    for (const auto& record : records) {
        if (static_cast<std::uint8_t>(record.reason) >= kAbsences) reader.fail();
    }
    if (!reader.finished()) return std::nullopt;
    return records;
}

void encode_put_start(const Prefix& prefix, std::span<const SegmentId> avoid, PutOptions options,
                      std::span<const std::string_view> preferred, std::span<const std::string_view> keys,
                      std::span<const std::uint64_t> sizes, std::span<const std::uint64_t> parents,
                      Writer& writer) {
    encode_prefix(prefix, avoid, writer);
    options.preferred_count = static_cast<std::uint16_t>(preferred.size());
    writer.put(options);
    for (const auto name : preferred) writer.text16(name);
    encode_keys(keys, writer);
    writer.array(sizes);
    writer.array(parents);
}

std::optional<PutStart> parse_put_start(Bytes body) {
    Reader reader(body);
    PutStart message;
    message.request = parse_prefix(reader);
    message.options = reader.get<PutOptions>();
    if (message.options.preferred_count > kPreferredMax) reader.fail();
    for (std::size_t i = 0; reader.ok() && i < message.options.preferred_count; ++i) {
        message.preferred.push_back(reader.text16(kNameBytesMax));
    }
    message.keys = KeyList::parse(reader);
    message.sizes = reader.bytes(std::size_t{message.keys.count()} * 8);
    message.parents = reader.bytes(std::size_t{message.keys.count()} * 8);
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode_put_end(const Prefix& prefix, std::span<const PutEndItem> items,
                    std::span<const ReplicaResult> results, Writer& writer) {
    encode_prefix(prefix, {}, writer);
    writer.put(static_cast<std::uint32_t>(items.size()));
    writer.put(static_cast<std::uint32_t>(results.size()));
    writer.array(items);
    writer.array(results);
}

std::optional<PutEnd> parse_put_end(Bytes body) {
    Reader reader(body);
    PutEnd message;
    message.request = parse_prefix(reader);
    const auto items = reader.get<std::uint32_t>();
    const auto results = reader.get<std::uint32_t>();
    message.items = reader.array<PutEndItem>(items, kBatchKeysMax);
    message.results = reader.array<ReplicaResult>(results, kBatchKeysMax * kReplicasMax);
    if (!reader.finished()) return std::nullopt;
    std::uint64_t owned = 0;
    for (const auto& item : message.items) owned += item.result_count;
    if (owned != message.results.size()) return std::nullopt;
    return message;
}

void encode_put_revoke(const Prefix& prefix, std::span<const PutId> put_ids, Writer& writer) {
    encode_segment_ids(prefix, put_ids, writer);
}

std::optional<PutRevoke> parse_put_revoke(Bytes body) {
    auto ids = parse_segment_ids(body);
    if (!ids) return std::nullopt;
    return PutRevoke{ids->request, std::move(ids->ids)};
}

void encode_list(const Prefix& prefix, std::uint64_t cursor, std::uint32_t limit, std::string_view key_prefix,
                 Writer& writer) {
    encode_prefix(prefix, {}, writer);
    writer.put(cursor);
    writer.put(limit);
    writer.text16(key_prefix);
}

std::optional<List> parse_list(Bytes body) {
    Reader reader(body);
    List message;
    message.request = parse_prefix(reader);
    message.cursor = reader.get<std::uint64_t>();
    message.limit = reader.get<std::uint32_t>();
    message.key_prefix = reader.text16(kKeyBytesMax);
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode_list_reply(std::uint64_t cursor, std::span<const ListedObject> objects, Writer& writer) {
    writer.put(cursor);
    writer.put(static_cast<std::uint32_t>(objects.size()));
    for (const auto& object : objects) {
        writer.text16(object.key);
        writer.put(object.size);
        writer.put(object.put_id);
        writer.put(object.replica_count);
        writer.put(object.flags);
    }
}

std::optional<ListReply> parse_list_reply(Bytes body) {
    Reader reader(body);
    ListReply reply;
    reply.cursor = reader.get<std::uint64_t>();
    const auto count = bounded_count(reader, kBatchKeysMax);
    for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
        ListedObject object;
        object.key = reader.text16(kKeyBytesMax);
        object.size = reader.get<std::uint64_t>();
        object.put_id = reader.get<PutId>();
        object.replica_count = reader.get<std::uint8_t>();
        object.flags = reader.get<std::uint8_t>();
        reply.objects.push_back(object);
    }
    if (!reader.finished()) return std::nullopt;
    return reply;
}

void encode_stats(std::span<const Stat> stats, Writer& writer) {
    writer.put(static_cast<std::uint32_t>(stats.size()));
    for (const auto& stat : stats) {
        writer.text16(stat.name);
        writer.put(stat.value);
    }
}

std::optional<std::vector<Stat>> parse_stats(Bytes body) {
    Reader reader(body);
    std::vector<Stat> stats;
    const auto count = bounded_count(reader, kBatchKeysMax);
    for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
        Stat stat;
        stat.name = reader.text16(kNameBytesMax);
        stat.value = reader.get<std::uint64_t>();
        stats.push_back(stat);
    }
    if (!reader.finished()) return std::nullopt;
    return stats;
}

}  // namespace mooncake::wire
