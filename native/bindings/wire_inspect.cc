// Packing and unpacking of inspect's bodies for Python.
#include "bindings/bindings.h"
#include "bindings/wire_convert.h"
#include "wire/inspect.h"

using namespace nanobind::literals;

namespace mooncake::bindings {

namespace {

nb::bytes encode_inspect(std::uint64_t session, int subject, const nb::bytes& name, std::uint32_t limit,
                         const Ids& avoid) {
    if (subject < 0 || subject > static_cast<int>(wire::Subject::kName)) {
        throw nb::value_error("subject is 0 (the pool), 1 (a key) or 2 (a name)");
    }
    const auto kind = static_cast<wire::Subject>(subject);
    const std::size_t name_max = kind == wire::Subject::kKey ? wire::kKeyBytesMax : wire::kNameBytesMax;
    check_bound("limit", limit, wire::kEventsShownMax);
    const auto checked =
        checked_name(kind == wire::Subject::kKey ? "key" : "name", wire::as_text(view(name)), name_max);
    if (checked.empty() != (kind == wire::Subject::kPool)) {
        throw nb::value_error("a key or name has at least one byte, the pool has none");
    }
    return written([&](wire::Writer& writer) {
        wire::encode_inspect({session, 0, 0, 0}, checked_ids("avoid", avoid, wire::kAvoidMax), kind, limit,
                             checked, writer);
    });
}

nb::dict key_dict(const wire::InspectReply& reply) {
    const wire::KeyRecord& key = *reply.key;
    nb::dict dict;
    dict["status"] = number(key.status);
    dict["reason"] = static_cast<int>(key.reason);
    dict["ended_ms_ago"] = key.ended_ms_ago;
    dict["put_id"] = key.put_id;
    dict["size"] = key.size;
    dict["flags"] = static_cast<int>(key.flags);
    dict["lease_count"] = key.lease_count;
    dict["lease_ms"] = key.lease_ms;
    dict["hold_ms"] = key.hold_ms;
    dict["soft_pin_ms"] = key.soft_pin_ms;
    dict["ttl_ms"] = key.ttl_ms;
    dict["unfinished_put_id"] = key.unfinished_put_id;
    dict["unfinished_size"] = key.unfinished_size;
    dict["unfinished_age_ms"] = key.unfinished_age_ms;
    dict["unfinished_owner"] = key.unfinished_owner;
    dict["unfinished_owner_name"] = text(reply.unfinished_owner_name);
    return dict;
}

nb::dict copy_dict(const wire::ToldCopy& copy) {
    nb::dict dict;
    dict["replica"] = copy.record.replica;
    dict["segment"] = copy.record.segment;
    dict["charged_bytes"] = copy.record.charged_bytes;
    dict["status"] = static_cast<int>(copy.record.status);
    dict["tier"] = static_cast<int>(copy.record.tier);
    dict["has_left"] = copy.record.has_left != 0;
    dict["segment_name"] = text(copy.segment_name);
    dict["host_id"] = text(copy.host_id);
    return dict;
}

nb::dict segment_dict(const wire::ToldSegment& segment) {
    nb::dict dict;
    dict["segment"] = segment.record.segment;
    dict["owner"] = segment.record.owner;
    dict["capacity_bytes"] = segment.record.capacity_bytes;
    dict["charged_bytes"] = segment.record.charged_bytes;
    dict["retiring_bytes"] = segment.record.retiring_bytes;
    dict["replica_count"] = segment.record.replica_count;
    dict["heard_ms_ago"] = segment.record.heard_ms_ago;
    dict["tier"] = static_cast<int>(segment.record.tier);
    dict["flags"] = static_cast<int>(segment.record.flags);
    dict["name"] = text(segment.name);
    dict["host_id"] = text(segment.host_id);
    dict["owner_name"] = text(segment.owner_name);
    dict["endpoint"] = text(segment.endpoint);
    return dict;
}

nb::dict event_dict(const wire::ToldEvent& event) {
    nb::dict dict;
    dict["ms_ago"] = event.record.ms_ago;
    dict["id"] = event.record.id;
    dict["segment"] = event.record.segment;
    dict["session"] = event.record.session;
    dict["number"] = event.record.number;
    dict["kind"] = static_cast<int>(event.record.kind);
    dict["reason"] = static_cast<int>(event.record.reason);
    dict["name"] = text(event.name);
    return dict;
}

nb::dict parse_inspect_reply(const nb::bytes& body) {
    const auto reply = parsed(wire::parse_inspect_reply(view(body)), "inspect's answer");
    nb::dict dict;
    dict["dropped_events"] = reply.dropped_events;
    dict["oldest_event_ms_ago"] = reply.oldest_event_ms_ago;
    dict["has_older_events"] = reply.has_older_events;
    dict["key"] = reply.key ? nb::object(key_dict(reply)) : nb::none();
    nb::list copies, segments, events;
    for (const auto& copy : reply.copies) copies.append(copy_dict(copy));
    for (const auto& segment : reply.segments) segments.append(segment_dict(segment));
    for (const auto& event : reply.events) events.append(event_dict(event));
    dict["copies"] = copies;
    dict["segments"] = segments;
    dict["events"] = events;
    return dict;
}

nb::dict parse_inspect(const nb::bytes& body) {
    const auto message = parsed(wire::parse_inspect(view(body)), "inspect");
    nb::dict dict = request_dict(message.request);
    dict["subject"] = static_cast<int>(message.subject);
    dict["limit"] = message.limit;
    dict["name"] = to_python(message.name);
    return dict;
}

// The inverse of the dicts above. Texts are views of the dicts' own, which the caller keeps.
template <class T>
T field(const nb::dict& dict, const char* name) {
    return nb::cast<T>(dict[name]);
}
std::string_view name_field(const nb::dict& dict, const char* name) {
    return checked_name(name, field<std::string_view>(dict, name));
}

wire::KeyRecord to_key(const nb::dict& dict) {
    wire::KeyRecord key;
    key.status = to_status(field<int>(dict, "status"));
    key.reason = static_cast<wire::Absence>(field<std::uint8_t>(dict, "reason"));
    key.flags = field<std::uint8_t>(dict, "flags");
    key.lease_count = field<std::uint32_t>(dict, "lease_count");
    key.ended_ms_ago = field<std::uint64_t>(dict, "ended_ms_ago");
    key.put_id = field<std::uint64_t>(dict, "put_id");
    key.size = field<std::uint64_t>(dict, "size");
    key.lease_ms = field<std::uint64_t>(dict, "lease_ms");
    key.hold_ms = field<std::uint64_t>(dict, "hold_ms");
    key.soft_pin_ms = field<std::uint64_t>(dict, "soft_pin_ms");
    key.ttl_ms = field<std::uint64_t>(dict, "ttl_ms");
    key.unfinished_put_id = field<std::uint64_t>(dict, "unfinished_put_id");
    key.unfinished_size = field<std::uint64_t>(dict, "unfinished_size");
    key.unfinished_age_ms = field<std::uint64_t>(dict, "unfinished_age_ms");
    key.unfinished_owner = field<std::uint64_t>(dict, "unfinished_owner");
    return key;
}

wire::ToldCopy to_copy(const nb::dict& dict) {
    wire::ToldCopy copy;
    copy.record.replica = field<std::uint64_t>(dict, "replica");
    copy.record.segment = field<std::uint64_t>(dict, "segment");
    copy.record.charged_bytes = field<std::uint64_t>(dict, "charged_bytes");
    copy.record.status = static_cast<wire::CopyStatus>(field<std::uint8_t>(dict, "status"));
    copy.record.tier = static_cast<wire::Tier>(field<std::uint8_t>(dict, "tier"));
    copy.record.has_left = field<bool>(dict, "has_left") ? 1 : 0;
    copy.segment_name = name_field(dict, "segment_name");
    copy.host_id = name_field(dict, "host_id");
    return copy;
}

wire::ToldSegment to_segment(const nb::dict& dict) {
    wire::ToldSegment segment;
    segment.record.segment = field<std::uint64_t>(dict, "segment");
    segment.record.owner = field<std::uint64_t>(dict, "owner");
    segment.record.capacity_bytes = field<std::uint64_t>(dict, "capacity_bytes");
    segment.record.charged_bytes = field<std::uint64_t>(dict, "charged_bytes");
    segment.record.retiring_bytes = field<std::uint64_t>(dict, "retiring_bytes");
    segment.record.replica_count = field<std::uint64_t>(dict, "replica_count");
    segment.record.heard_ms_ago = field<std::uint64_t>(dict, "heard_ms_ago");
    segment.record.tier = static_cast<wire::Tier>(field<std::uint8_t>(dict, "tier"));
    segment.record.flags = field<std::uint8_t>(dict, "flags");
    segment.name = name_field(dict, "name");
    segment.host_id = name_field(dict, "host_id");
    segment.owner_name = name_field(dict, "owner_name");
    segment.endpoint = name_field(dict, "endpoint");
    return segment;
}

wire::ToldEvent to_event(const nb::dict& dict) {
    wire::ToldEvent event;
    event.record.ms_ago = field<std::uint64_t>(dict, "ms_ago");
    event.record.id = field<std::uint64_t>(dict, "id");
    event.record.segment = field<std::uint64_t>(dict, "segment");
    event.record.session = field<std::uint64_t>(dict, "session");
    event.record.number = field<std::uint64_t>(dict, "number");
    event.record.kind = static_cast<wire::EventKind>(field<std::uint8_t>(dict, "kind"));
    event.record.reason = static_cast<wire::EventReason>(field<std::uint8_t>(dict, "reason"));
    event.name = name_field(dict, "name");
    return event;
}

template <class Made>
std::vector<Made> each(const nb::dict& dict, const char* name, std::size_t max,
                       Made (*make)(const nb::dict&)) {
    const auto items = field<std::vector<nb::dict>>(dict, name);
    check_bound(name, items.size(), max);
    std::vector<Made> made;
    for (const auto& item : items) made.push_back(make(item));
    return made;
}

nb::bytes encode_inspect_reply(const nb::dict& dict) {
    wire::InspectReply reply;
    reply.dropped_events = field<std::uint64_t>(dict, "dropped_events");
    reply.oldest_event_ms_ago = field<std::uint64_t>(dict, "oldest_event_ms_ago");
    reply.has_older_events = field<bool>(dict, "has_older_events");
    if (!nb::object(dict["key"]).is_none()) {
        const auto key = field<nb::dict>(dict, "key");
        reply.key = to_key(key);
        reply.unfinished_owner_name = name_field(key, "unfinished_owner_name");
    }
    reply.copies = each(dict, "copies", wire::kCopiesShownMax, to_copy);
    reply.segments = each(dict, "segments", wire::kSegmentsShownMax, to_segment);
    reply.events = each(dict, "events", wire::kEventsShownMax, to_event);
    return written([&](wire::Writer& writer) { wire::encode_inspect_reply(reply, writer); });
}

}  // namespace

void bind_wire_inspect(nb::module_& module) {
    module.def("encode_inspect", &encode_inspect, "session"_a, "subject"_a, "name"_a = nb::bytes("", 0),
               "limit"_a = 0, "avoid"_a = Ids{});
    module.def("parse_inspect", &parse_inspect, "body"_a);
    module.def("encode_inspect_reply", &encode_inspect_reply, "reply"_a);
    module.def("parse_inspect_reply", &parse_inspect_reply, "body"_a);
}

}  // namespace mooncake::bindings
