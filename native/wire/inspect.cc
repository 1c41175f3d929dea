#include "wire/inspect.h"

namespace mooncake::wire {

void encode_inspect(const Prefix& prefix, std::span<const SegmentId> avoid, Subject subject,
                    std::uint32_t limit, std::string_view name, Writer& writer) {
    encode_prefix(prefix, avoid, writer);
    writer.put(static_cast<std::uint32_t>(subject));
    writer.put(limit);
    writer.text16(name);
}

std::optional<Inspect> parse_inspect(Bytes body) {
    Reader reader(body);
    Inspect message;
    message.request = parse_prefix(reader);
    const auto subject = reader.get<std::uint32_t>();
    if (subject > static_cast<std::uint32_t>(Subject::kName)) reader.fail();
    message.subject = static_cast<Subject>(subject);
    message.limit = reader.get<std::uint32_t>();
    message.name = reader.text16(message.subject == Subject::kKey ? kKeyBytesMax : kNameBytesMax);
    if (message.limit > kEventsShownMax || message.name.empty() != (message.subject == Subject::kPool)) {
        reader.fail();
    }
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode_inspect_reply(const InspectReply& reply, Writer& writer) {
    writer.put(reply.dropped_events);
    writer.put(reply.oldest_event_ms_ago);
    writer.put(static_cast<std::uint8_t>(reply.key.has_value()));
    writer.put(static_cast<std::uint8_t>(reply.has_older_events));
    writer.put(std::uint16_t{0});
    writer.put(std::uint32_t{0});
    if (reply.key) {
        writer.put(*reply.key);
        writer.text16(reply.unfinished_owner_name);
    }
    writer.put(static_cast<std::uint32_t>(reply.copies.size()));
    for (const auto& copy : reply.copies) {
        writer.put(copy.record);
        writer.text16(copy.segment_name);
        writer.text16(copy.host_id);
    }
    writer.put(static_cast<std::uint32_t>(reply.segments.size()));
    for (const auto& segment : reply.segments) {
        writer.put(segment.record);
        for (const auto text : {segment.name, segment.host_id, segment.owner_name, segment.endpoint}) {
            writer.text16(text);
        }
    }
    writer.put(static_cast<std::uint32_t>(reply.events.size()));
    for (const auto& event : reply.events) {
        writer.put(event.record);
        writer.text16(event.name);
    }
}

namespace {

// Of so many records that follow; 0 and failure beyond max.
std::size_t count_of(Reader& reader, std::size_t max) {
    const std::size_t count = reader.get<std::uint32_t>();
    if (count > max) reader.fail();
    return reader.ok() ? count : 0;
}

bool is_sound(const KeyRecord& key) { return static_cast<std::uint8_t>(key.reason) < kAbsences; }
bool is_sound(const CopyRecord& copy) {
    return copy.status >= CopyStatus::kUnfinished && copy.status <= CopyStatus::kCopying;
}
bool is_sound(const EventRecord& event) {
    const auto kind = static_cast<std::uint8_t>(event.kind);
    return kind > 0 && kind <= kEventKindMax && static_cast<std::uint8_t>(event.reason) <= kEventReasonMax;
}

}  // namespace

std::optional<InspectReply> parse_inspect_reply(Bytes body) {
    Reader reader(body);
    InspectReply reply;
    reply.dropped_events = reader.get<std::uint64_t>();
    reply.oldest_event_ms_ago = reader.get<std::uint64_t>();
    const bool has_key = reader.get<std::uint8_t>() != 0;
    reply.has_older_events = reader.get<std::uint8_t>() != 0;
    reader.bytes(6);
    if (has_key) {
        reply.key = reader.get<KeyRecord>();
        if (!is_sound(*reply.key)) reader.fail();
        reply.unfinished_owner_name = reader.text16(kNameBytesMax);
    }
    for (auto left = count_of(reader, kCopiesShownMax); left > 0 && reader.ok(); --left) {
        ToldCopy copy{reader.get<CopyRecord>(), {}, {}};
        if (!is_sound(copy.record)) reader.fail();
        copy.segment_name = reader.text16(kNameBytesMax);
        copy.host_id = reader.text16(kNameBytesMax);
        reply.copies.push_back(copy);
    }
    for (auto left = count_of(reader, kSegmentsShownMax); left > 0 && reader.ok(); --left) {
        ToldSegment segment{reader.get<SegmentRecord>(), {}, {}, {}, {}};
        for (auto* text : {&segment.name, &segment.host_id, &segment.owner_name, &segment.endpoint}) {
            *text = reader.text16(kNameBytesMax);
        }
        reply.segments.push_back(segment);
    }
    for (auto left = count_of(reader, kEventsShownMax); left > 0 && reader.ok(); --left) {
        ToldEvent event{reader.get<EventRecord>(), {}};
        if (!is_sound(event.record)) reader.fail();
        event.name = reader.text16(kNameBytesMax);
        reply.events.push_back(event);
    }
    if (!reader.finished()) return std::nullopt;
    return reply;
}

}  // namespace mooncake::wire
