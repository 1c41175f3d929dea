// Packing and unpacking of frames, sessions, segments and control messages for Python: the gRPC door and the
// tests hand the state machine the same bytes as the lane does. Object verbs: wire_object_messages.cc.
#include "bindings/bindings.h"
#include "bindings/wire_convert.h"
#include "wire/control.h"
#include "wire/frame.h"
#include "wire/tombstones.h"

using namespace nanobind::literals;

namespace mooncake::bindings {

namespace {

nb::bytes encode_frame(int verb, const nb::bytes& body, std::uint64_t request_id, int flags, int status,
                       std::uint64_t epoch) {
    check_bound("body bytes", body.size(), wire::kBodyBytesMax);
    wire::FrameHeader header;
    header.verb = static_cast<wire::Verb>(verb);
    header.flags = static_cast<std::uint8_t>(flags);
    header.status = to_status(status);
    header.request_id = request_id;
    header.epoch = epoch;
    wire::Buffer frame;
    const auto start = wire::begin_frame(frame, header);
    wire::Writer(frame).bytes(view(body));
    wire::finish_frame(frame, start);
    return to_python(wire::Bytes(frame));
}

nb::dict parse_frame_header(const nb::bytes& bytes) {
    const auto header = parsed(wire::parse_frame_header(view(bytes)), "a frame header");
    nb::dict dict;
    dict["body_bytes"] = header.body_bytes;
    dict["verb"] = static_cast<int>(header.verb);
    dict["flags"] = static_cast<int>(header.flags);
    dict["status"] = number(header.status);
    dict["request_id"] = header.request_id;
    dict["epoch"] = header.epoch;
    return dict;
}

nb::dict verb_numbers() {
    nb::dict dict;
    for (int i = 0; i < 256; ++i) {
        const char* name = wire::verb_name(static_cast<wire::Verb>(i));
        if (name != nullptr) dict[name] = i;
    }
    return dict;
}

nb::bytes encode_hello(int role, const nb::bytes& process, std::string_view tenant, std::string_view software,
                       const nb::bytes& auth, int auth_kind, int version_min, int version_max) {
    wire::Hello hello;
    hello.version_min = static_cast<std::uint16_t>(version_min);
    hello.version_max = static_cast<std::uint16_t>(version_max);
    hello.role = static_cast<wire::Role>(role);
    hello.auth_kind = static_cast<wire::AuthKind>(auth_kind);
    hello.process = to_uuid(process);
    hello.auth = checked_name("auth", wire::as_text(view(auth)), wire::kAuthBytesMax);
    hello.software = checked_name("software", software);
    hello.tenant = checked_name("tenant", tenant, wire::kTenantBytesMax);
    return written([&](wire::Writer& writer) { encode(hello, writer); });
}

nb::dict parse_hello(const nb::bytes& body) {
    const auto hello = parsed(wire::parse_hello(view(body)), "hello");
    nb::dict dict;
    dict["version_min"] = hello.version_min;
    dict["version_max"] = hello.version_max;
    dict["role"] = static_cast<int>(hello.role);
    dict["auth_kind"] = static_cast<int>(hello.auth_kind);
    dict["process"] = from_uuid(hello.process);
    dict["auth"] = to_python(hello.auth);
    dict["software"] = text(hello.software);
    dict["tenant"] = text(hello.tenant);
    return dict;
}

nb::bytes encode_welcome(int version, const nb::bytes& process, std::string_view software) {
    wire::Welcome welcome;
    welcome.version = static_cast<std::uint16_t>(version);
    welcome.process = to_uuid(process);
    welcome.software = checked_name("software", software);
    return written([&](wire::Writer& writer) { encode(welcome, writer); });
}

nb::dict parse_welcome(const nb::bytes& body) {
    const auto welcome = parsed(wire::parse_welcome(view(body)), "hello's answer");
    nb::dict dict;
    dict["version"] = welcome.version;
    dict["process"] = from_uuid(welcome.process);
    dict["software"] = text(welcome.software);
    return dict;
}

nb::bytes encode_heartbeat(std::uint64_t session, const Ids& avoid, const std::vector<int>& failures) {
    if (!failures.empty() && failures.size() != avoid.size()) {
        throw nb::value_error((std::to_string(failures.size()) + " failures for " +
                               std::to_string(avoid.size()) + " unreachable segments")
                                  .c_str());
    }
    std::vector<wire::PeerFailure> kinds;
    for (const int one : failures) {
        const bool is_known = one >= 0 && one <= static_cast<int>(wire::PeerFailure::kTimedOut);
        kinds.push_back(is_known ? static_cast<wire::PeerFailure>(one) : wire::PeerFailure::kUnknown);
    }
    return written([&](wire::Writer& writer) {
        wire::encode_heartbeat({session, 0, 0, 0}, checked_ids("avoid", avoid, wire::kAvoidMax), kinds,
                               writer);
    });
}

nb::dict parse_heartbeat(const nb::bytes& body) {
    const auto heartbeat = parsed(wire::parse_heartbeat(view(body)), "heartbeat");
    nb::dict dict = request_dict(heartbeat.request);
    nb::list failures;
    for (std::size_t i = 0; i < heartbeat.failures.size(); ++i) {
        failures.append(static_cast<int>(heartbeat.failure(i)));
    }
    dict["failures"] = failures;
    return dict;
}

nb::bytes encode_prefix(std::uint64_t session, std::uint64_t sequence, std::uint32_t flags,
                        const Ids& avoid) {
    return written([&](wire::Writer& writer) {
        wire::encode_prefix({session, sequence, flags, 0},
                            checked_ids("avoided segments", avoid, wire::kAvoidMax), writer);
    });
}

nb::dict parse_prefix(const nb::bytes& body) {
    wire::Reader reader(view(body));
    const auto request = wire::parse_prefix(reader);
    if (!reader.finished()) throw nb::value_error("malformed body of a request without arguments");
    return request_dict(request);
}

nb::bytes encode_open_session(const nb::bytes& process, std::string_view name, std::string_view host_id,
                              std::string_view tenant) {
    wire::OpenSession message;
    message.process = to_uuid(process);
    message.name = checked_name("name", name);
    message.host_id = checked_name("host_id", host_id);
    message.tenant = checked_name("tenant", tenant, wire::kTenantBytesMax);
    return written([&](wire::Writer& writer) { encode(message, writer); });
}

nb::dict parse_open_session(const nb::bytes& body) {
    const auto message = parsed(wire::parse_open_session(view(body)), "open_session");
    nb::dict dict;
    dict["process"] = from_uuid(message.process);
    dict["name"] = text(message.name);
    dict["host_id"] = text(message.host_id);
    dict["tenant"] = text(message.tenant);
    return dict;
}

nb::bytes encode_open_session_reply(std::uint64_t session, std::uint64_t epoch, const nb::bytes& master,
                                    std::uint32_t client_ttl_ms, std::uint32_t heartbeat_interval_ms,
                                    std::uint32_t lease_ttl_ms, std::uint32_t exists_hold_ms) {
    const wire::OpenSessionReply message{
        session, epoch, to_uuid(master), client_ttl_ms, heartbeat_interval_ms, lease_ttl_ms, exists_hold_ms};
    return written([&](wire::Writer& writer) { encode(message, writer); });
}

nb::dict parse_open_session_reply(const nb::bytes& body) {
    const auto message = parsed(wire::parse_open_session_reply(view(body)), "open_session's answer");
    nb::dict dict;
    dict["session"] = message.session;
    dict["epoch"] = message.epoch;
    dict["master"] = from_uuid(message.master);
    dict["client_ttl_ms"] = message.client_ttl_ms;
    dict["heartbeat_interval_ms"] = message.heartbeat_interval_ms;
    dict["lease_ttl_ms"] = message.lease_ttl_ms;
    dict["exists_hold_ms"] = message.exists_hold_ms;
    return dict;
}

// A segment as Python gives it; owns the text that a wire::SegmentDescription only views.
struct Segment {
    explicit Segment(const nb::dict& dict)
        : tier(nb::cast<int>(dict["tier"])),
          capacity_bytes(nb::cast<std::uint64_t>(dict["capacity_bytes"])),
          incarnation(to_uuid(nb::cast<nb::bytes>(dict["incarnation"]))),
          name(nb::cast<std::string>(dict["name"])),
          host_id(nb::cast<std::string>(dict["host_id"])),
          endpoints(nb::cast<std::vector<std::string>>(dict["endpoints"])) {
        checked_name("segment name", name);
        checked_name("host_id", host_id);
        check_bound("endpoints", endpoints.size(), wire::kEndpointsMax);
        for (const auto& endpoint : endpoints) checked_name("endpoint", endpoint);
    }
    wire::SegmentDescription description() const {
        return {static_cast<wire::Tier>(tier),       capacity_bytes, incarnation, name, host_id,
                {endpoints.begin(), endpoints.end()}};
    }

    int tier;
    std::uint64_t capacity_bytes;
    wire::Uuid incarnation;
    std::string name;
    std::string host_id;
    std::vector<std::string> endpoints;
};

void describe(const wire::SegmentDescription& segment, nb::dict& dict) {
    nb::list endpoints;
    for (const auto endpoint : segment.endpoints) endpoints.append(text(endpoint));
    dict["tier"] = static_cast<int>(segment.tier);
    dict["capacity_bytes"] = segment.capacity_bytes;
    dict["incarnation"] = from_uuid(segment.incarnation);
    dict["name"] = text(segment.name);
    dict["host_id"] = text(segment.host_id);
    dict["endpoints"] = endpoints;
}

nb::bytes encode_mount(std::uint64_t session, std::uint64_t sequence, std::uint64_t known_epoch,
                       const nb::bytes& known_master, const std::vector<nb::dict>& segments,
                       std::uint32_t flags) {
    check_bound("segments", segments.size(), wire::kSegmentsAMountMax);
    const std::vector<Segment> owned(segments.begin(), segments.end());
    std::vector<wire::SegmentDescription> described;
    for (const auto& segment : owned) described.push_back(segment.description());
    return written([&](wire::Writer& writer) {
        wire::encode_mount({session, sequence, 0, 0}, {known_epoch, to_uuid(known_master), flags}, described,
                           writer);
    });
}

nb::dict parse_mount(const nb::bytes& body) {
    const auto message = parsed(wire::parse_mount(view(body)), "mount");
    nb::list segments;
    for (const auto& segment : message.segments) {
        nb::dict described;
        describe(segment, described);
        segments.append(described);
    }
    nb::dict dict = request_dict(message.request);
    dict["known_epoch"] = message.origin.known_epoch;
    dict["known_master"] = from_uuid(message.origin.known_master);
    dict["mount_flags"] = message.origin.flags;
    dict["segments"] = segments;
    return dict;
}

nb::bytes encode_mount_reply(const std::vector<std::pair<int, wire::SegmentId>>& answers) {
    std::vector<wire::MountAnswer> records;
    for (const auto& [status, segment] : answers) records.push_back({to_status(status), segment});
    return written([&](wire::Writer& writer) { wire::encode_mount_reply(records, writer); });
}

std::vector<std::pair<int, wire::SegmentId>> parse_mount_reply(const nb::bytes& body) {
    std::vector<std::pair<int, wire::SegmentId>> answers;
    for (const auto& answer : parsed(wire::parse_mount_reply(view(body)), "mount's answer")) {
        answers.emplace_back(number(answer.status), answer.segment);
    }
    return answers;
}

nb::bytes encode_segment_ids(std::uint64_t session, const Ids& segments, std::uint64_t sequence) {
    return written([&](wire::Writer& writer) {
        wire::encode_segment_ids({session, sequence, 0, 0},
                                 checked_ids("segments", segments, wire::kBatchKeysMax), writer);
    });
}

nb::dict parse_segment_ids(const nb::bytes& body) {
    const auto message = parsed(wire::parse_segment_ids(view(body)), "unmount or segments");
    nb::dict dict = request_dict(message.request);
    dict["ids"] = message.ids;
    return dict;
}

nb::bytes encode_segments_reply(const std::vector<nb::dict>& segments) {
    check_bound("segments", segments.size(), wire::kBatchKeysMax);
    const std::vector<Segment> owned(segments.begin(), segments.end());
    std::vector<wire::SegmentInfo> records;
    for (std::size_t i = 0; i < owned.size(); ++i) {
        const nb::dict& dict = segments[i];
        records.push_back({to_status(nb::cast<int>(dict["status"])), nb::cast<std::uint64_t>(dict["segment"]),
                           nb::cast<std::uint64_t>(dict["owner"]),
                           nb::cast<std::uint64_t>(dict["charged_bytes"]),
                           nb::cast<std::uint64_t>(dict["retiring_bytes"]),
                           nb::cast<std::uint64_t>(dict["replica_count"]), owned[i].description()});
    }
    return written([&](wire::Writer& writer) { wire::encode_segments_reply(records, writer); });
}

nb::list parse_segments_reply(const nb::bytes& body) {
    nb::list segments;
    for (const auto& info : parsed(wire::parse_segments_reply(view(body)), "segments' answer")) {
        nb::dict dict;
        dict["status"] = number(info.status);
        dict["segment"] = info.segment;
        dict["owner"] = info.owner;
        dict["charged_bytes"] = info.charged_bytes;
        dict["retiring_bytes"] = info.retiring_bytes;
        dict["replica_count"] = info.replica_count;
        describe(info.description, dict);
        segments.append(dict);
    }
    return segments;
}

// retire and its answer: a number and ids.
template <auto Encode>
nb::bytes encode_numbered(std::uint64_t number, const Ids& ids) {
    return written(
        [&](wire::Writer& writer) { Encode(number, checked_ids("ids", ids, wire::kReplicaIdsMax), writer); });
}

std::pair<std::uint64_t, Ids> parse_retire(const nb::bytes& body) {
    auto message = parsed(wire::parse_retire(view(body)), "retire");
    return {message.command_id, std::move(message.replicas)};
}

std::pair<std::uint64_t, Ids> parse_retire_reply(const nb::bytes& body) {
    auto message = parsed(wire::parse_retire_reply(view(body)), "retire's answer");
    return {message.command_id, std::move(message.freed)};
}

nb::bytes encode_report_reply(std::uint64_t settled_id, const Ids& unknown, std::uint64_t generation,
                              std::uint64_t comparison, std::uint64_t compared_segment) {
    check_bound("unknown_segments", unknown.size(), wire::kSegmentsAMountMax);
    return written([&](wire::Writer& writer) {
        wire::encode_report_reply({settled_id, generation, comparison, compared_segment, unknown}, writer);
    });
}

nb::dict parse_report_reply(const nb::bytes& body) {
    auto message = parsed(wire::parse_report_reply(view(body)), "report's answer");
    nb::dict dict;
    dict["settled_id"] = message.settled_id;
    dict["tombstones_generation"] = message.tombstones_generation;
    dict["comparison"] = message.comparison;
    dict["compared_segment"] = message.compared_segment;
    dict["unknown_segments"] = message.unknown_segments;
    return dict;
}

nb::bytes encode_holdings(std::uint64_t session, std::uint64_t comparison, const Ids& replicas,
                          std::uint32_t flags) {
    return written([&](wire::Writer& writer) {
        wire::encode_holdings({session, 0, 0, 0}, comparison, flags,
                              checked_ids("replicas", replicas, wire::kReplicaIdsMax), writer);
    });
}

nb::dict parse_holdings(const nb::bytes& body) {
    const auto message = parsed(wire::parse_holdings(view(body)), "holdings");
    nb::dict dict = request_dict(message.request);
    dict["comparison"] = message.comparison;
    dict["holdings_flags"] = message.flags;
    dict["replicas"] = message.replicas;
    return dict;
}

using Floors = std::vector<std::pair<nb::bytes, wire::ReplicaId>>;
using Keys = std::vector<std::pair<std::uint64_t, wire::PutId>>;

nb::bytes encode_tombstones(std::uint64_t closed_epoch, const std::vector<nb::bytes>& expelled,
                            const Floors& floors, const Ids& replicas, const Keys& keys,
                            std::uint64_t epoch) {
    check_bound("expelled", expelled.size(), wire::kExpelledMax);
    check_bound("keys", keys.size(), wire::kTombstonesMax);
    wire::Tombstones tombstones;
    tombstones.epoch = epoch;
    tombstones.closed_epoch = closed_epoch;
    for (const auto& incarnation : expelled) tombstones.expelled.push_back(to_uuid(incarnation));
    for (const auto& [incarnation, floor] : floors)
        tombstones.floors.push_back({to_uuid(incarnation), floor});
    check_bound("replicas", replicas.size(), wire::kTombstonesMax);
    tombstones.replicas = replicas;
    for (const auto& [digest, put_id] : keys) tombstones.keys.push_back({digest, put_id});
    return written([&](wire::Writer& writer) { wire::encode(tombstones, writer); });
}

nb::dict parse_tombstones(const nb::bytes& body) {
    const auto message = parsed(wire::parse_tombstones(view(body)), "tombstones");
    nb::list expelled;
    for (const auto& incarnation : message.expelled) expelled.append(from_uuid(incarnation));
    nb::list floors;
    for (const auto& floor : message.floors)
        floors.append(nb::make_tuple(from_uuid(floor.incarnation), floor.replica));
    nb::list keys;
    for (const auto& key : message.keys) keys.append(nb::make_tuple(key.digest, key.put_id));
    nb::dict dict;
    dict["epoch"] = message.epoch;
    dict["closed_epoch"] = message.closed_epoch;
    dict["expelled"] = expelled;
    dict["floors"] = floors;
    dict["replicas"] = message.replicas;
    dict["keys"] = keys;
    return dict;
}

nb::bytes encode_tombstones_request(std::uint64_t session, const nb::bytes& kept) {
    return written([&](wire::Writer& writer) {
        wire::encode_tombstones_request({session, 0, 0, 0}, view(kept), writer);
    });
}

std::pair<std::uint64_t, nb::bytes> parse_tombstones_reply(const nb::bytes& body) {
    const auto message = parsed(wire::parse_tombstones_reply(view(body)), "tombstones' answer");
    return {message.generation, to_python(message.kept)};
}

nb::bytes encode_report(std::uint64_t session, std::uint64_t last_command_id,
                        const std::vector<nb::dict>& segments, const Ids& freed, wire::ReplicaId settled_id) {
    check_bound("segments", segments.size(), wire::kSegmentsAMountMax);
    std::vector<wire::SegmentReport> records;
    for (const auto& dict : segments) {
        const auto number_of = [&](const char* name) { return nb::cast<std::uint64_t>(dict[name]); };
        records.push_back({number_of("segment"), number_of("ready_bytes"), number_of("receiving_bytes"),
                           number_of("draining_bytes"), number_of("largest_free_bytes"),
                           number_of("sealed_count"), number_of("sealed_checksum")});
    }
    return written([&](wire::Writer& writer) {
        wire::encode_report({session, 0, 0, 0}, last_command_id, settled_id, records,
                            checked_ids("freed replicas", freed, wire::kReplicaIdsMax), writer);
    });
}

nb::dict parse_report(const nb::bytes& body) {
    const auto message = parsed(wire::parse_report(view(body)), "report");
    nb::list segments;
    for (const auto& record : message.segments) {
        nb::dict segment;
        segment["segment"] = record.segment;
        segment["ready_bytes"] = record.ready_bytes;
        segment["receiving_bytes"] = record.receiving_bytes;
        segment["draining_bytes"] = record.draining_bytes;
        segment["largest_free_bytes"] = record.largest_free_bytes;
        segment["sealed_count"] = record.sealed_count;
        segment["sealed_checksum"] = record.sealed_checksum;
        segments.append(segment);
    }
    nb::dict dict = request_dict(message.request);
    dict["last_command_id"] = message.last_command_id;
    dict["settled_id"] = message.settled_id;
    dict["segments"] = segments;
    dict["freed"] = message.freed;
    return dict;
}

nb::bytes encode_inventory(std::uint64_t session, std::uint32_t flags,
                           const std::vector<std::tuple<wire::ReplicaId, wire::SegmentId, nb::bytes>>& items,
                           std::uint64_t total_count, std::uint64_t total_checksum) {
    check_bound("items", items.size(), wire::kReplicaIdsMax);
    std::vector<wire::InventoryItem> records;
    wire::Buffer headers;
    wire::Writer header_writer(headers);
    for (const auto& [replica, segment, header] : items) {
        records.push_back({replica, segment, static_cast<std::uint32_t>(header.size()), 0});
        header_writer.bytes(view(header));
    }
    return written([&](wire::Writer& writer) {
        wire::encode_inventory({session, 0, 0, 0}, flags, {total_count, total_checksum}, records, headers,
                               writer);
    });
}

nb::dict parse_inventory(const nb::bytes& body) {
    const auto message = parsed(wire::parse_inventory(view(body)), "inventory");
    nb::list items;
    for (std::size_t i = 0; i < message.items.size(); ++i) {
        wire::Buffer header;
        wire::Writer writer(header);
        wire::encode(message.headers[i], writer);
        items.append(nb::make_tuple(message.items[i].replica, message.items[i].segment,
                                    nb::bytes(header.data(), header.size())));
    }
    nb::dict dict = request_dict(message.request);
    dict["inventory_flags"] = message.flags;
    dict["total_count"] = message.totals.count;
    dict["total_checksum"] = message.totals.checksum;
    dict["items"] = items;
    return dict;
}

}  // namespace

void bind_wire_messages(nb::module_& module) {
    module.def("verb_numbers", &verb_numbers);
    module.def("encode_frame", &encode_frame, "verb"_a, "body"_a, "request_id"_a = 0, "flags"_a = 0,
               "status"_a = 0, "epoch"_a = 0);
    module.def("parse_frame_header", &parse_frame_header, "header"_a);
    module.def("encode_hello", &encode_hello, "role"_a, "process"_a, "tenant"_a = "", "software"_a = "",
               "auth"_a = nb::bytes("", 0), "auth_kind"_a = 0, "version_min"_a = int{wire::kVersionMin},
               "version_max"_a = int{wire::kVersionMax});
    module.def("parse_hello", &parse_hello, "body"_a);
    module.def("encode_welcome", &encode_welcome, "version"_a, "process"_a, "software"_a);
    module.def("parse_welcome", &parse_welcome, "body"_a);
    module.def("encode_heartbeat", &encode_heartbeat, "session"_a, "avoid"_a = Ids{},
               "failures"_a = std::vector<int>{});
    module.def("parse_heartbeat", &parse_heartbeat, "body"_a);
    module.def("encode_prefix", &encode_prefix, "session"_a, "sequence"_a = 0, "flags"_a = 0,
               "avoid"_a = Ids{});
    module.def("parse_prefix", &parse_prefix, "body"_a);
    module.def("encode_open_session", &encode_open_session, "process"_a, "name"_a, "host_id"_a, "tenant"_a);
    module.def("parse_open_session", &parse_open_session, "body"_a);
    module.def("encode_open_session_reply", &encode_open_session_reply, "session"_a, "epoch"_a, "master"_a,
               "client_ttl_ms"_a, "heartbeat_interval_ms"_a, "lease_ttl_ms"_a, "exists_hold_ms"_a);
    module.def("parse_open_session_reply", &parse_open_session_reply, "body"_a);
    module.def("encode_mount", &encode_mount, "session"_a, "sequence"_a, "known_epoch"_a, "known_master"_a,
               "segments"_a, "flags"_a = 0);
    module.def("parse_mount", &parse_mount, "body"_a);
    module.def("encode_mount_reply", &encode_mount_reply, "answers"_a);
    module.def("parse_mount_reply", &parse_mount_reply, "body"_a);
    module.def("encode_segment_ids", &encode_segment_ids, "session"_a, "segments"_a, "sequence"_a = 0);
    module.def("parse_segment_ids", &parse_segment_ids, "body"_a);
    module.def("encode_segments_reply", &encode_segments_reply, "segments"_a);
    module.def("parse_segments_reply", &parse_segments_reply, "body"_a);
    module.def("encode_retire", &encode_numbered<&wire::encode_retire>, "command_id"_a, "replicas"_a);
    module.def("parse_retire", &parse_retire, "body"_a);
    module.def("encode_retire_reply", &encode_numbered<&wire::encode_retire_reply>, "command_id"_a,
               "freed"_a);
    module.def("parse_retire_reply", &parse_retire_reply, "body"_a);
    module.def("encode_report", &encode_report, "session"_a, "last_command_id"_a, "segments"_a, "freed"_a,
               "settled_id"_a = 0);
    module.def("encode_holdings", &encode_holdings, "session"_a, "comparison"_a, "replicas"_a, "flags"_a = 1);
    module.def("parse_holdings", &parse_holdings, "body"_a);
    module.def("parse_report", &parse_report, "body"_a);
    module.def("encode_report_reply", &encode_report_reply, "settled_id"_a, "unknown_segments"_a,
               "tombstones_generation"_a = 0, "comparison"_a = 0, "compared_segment"_a = 0);
    module.def("parse_report_reply", &parse_report_reply, "body"_a);
    module.def("encode_tombstones", &encode_tombstones, "closed_epoch"_a = 0,
               "expelled"_a = std::vector<nb::bytes>{}, "floors"_a = Floors{}, "replicas"_a = Ids{},
               "keys"_a = Keys{}, "epoch"_a = 0);
    module.def("parse_tombstones", &parse_tombstones, "body"_a);
    module.def("encode_tombstones_request", &encode_tombstones_request, "session"_a, "kept"_a);
    module.def("parse_tombstones_reply", &parse_tombstones_reply, "body"_a);
    module.def("encode_inventory", &encode_inventory, "session"_a, "flags"_a, "items"_a, "total_count"_a,
               "total_checksum"_a);
    module.def("parse_inventory", &parse_inventory, "body"_a);
}

}  // namespace mooncake::bindings
