// Every parser of native/wire: what parses is encoded again to the same meaning and the same length; what
// does not is refused without reading beyond it. The first byte chooses the parser.
#include <array>
#include <optional>

#include "fuzz.h"
#include "wire/control.h"
#include "wire/crc32c.h"
#include "wire/data.h"
#include "wire/digest.h"
#include "wire/frame.h"
#include "wire/lane.h"
#include "wire/shared_memory.h"
#include "wire/tasks.h"
#include "wire/tombstones.h"
#include "wire/transfer.h"
#include "wire/value_checksum.h"
#include "wire/value_header.h"

namespace {

using namespace mooncake::wire;
using fuzz::packed;

std::vector<SegmentId> list_of(const AvoidList& avoid) {
    std::vector<SegmentId> ids;
    for (std::size_t i = 0; i < avoid.count(); ++i) ids.push_back(avoid.at(i));
    return ids;
}

std::vector<std::string_view> list_of(const KeyList& keys) {
    std::vector<std::string_view> list;
    for (KeyList::Cursor cursor(keys); !cursor.done();) list.push_back(cursor.next());
    REQUIRE(list.size() == keys.count());
    return list;
}

// Parses a body and encodes what it said; nullopt when it was refused.
using Again = std::optional<Buffer> (*)(Bytes body);

template <auto kParse>
std::optional<Buffer> again(Bytes body) {
    const auto message = kParse(body);
    if (!message) return std::nullopt;
    return packed([&](Writer& writer) { encode(*message, writer); });
}

std::optional<Buffer> frame_header_again(Bytes body) {
    const auto header = parse_frame_header(body.first(std::min(body.size(), kFrameHeaderBytes)));
    if (!header) return std::nullopt;
    REQUIRE(header->body_bytes <= kBodyBytesMax && verb_name(header->verb) != nullptr);
    Buffer buffer;
    begin_frame(buffer, *header);
    return buffer;
}

std::optional<Buffer> mount_again(Bytes body) {
    const auto message = parse_mount(body);
    if (!message) return std::nullopt;
    // The answer's avoid list is not part of what encode_mount takes: nodes avoid nobody.
    if (message->request.avoid.count() > 0) return std::nullopt;
    REQUIRE(message->segments.size() <= kSegmentsAMountMax);
    return packed([&](Writer& writer) {
        encode_mount(message->request.prefix, message->origin, message->segments, writer);
    });
}

std::optional<Buffer> mount_reply_again(Bytes body) {
    const auto answers = parse_mount_reply(body);
    if (!answers) return std::nullopt;
    return packed([&](Writer& writer) { encode_mount_reply(*answers, writer); });
}

std::optional<Buffer> segment_ids_again(Bytes body) {
    const auto message = parse_segment_ids(body);
    if (!message || message->request.avoid.count() > 0) return std::nullopt;
    return packed([&](Writer& writer) { encode_segment_ids(message->request.prefix, message->ids, writer); });
}

std::optional<Buffer> segments_reply_again(Bytes body) {
    const auto infos = parse_segments_reply(body);
    if (!infos) return std::nullopt;
    return packed([&](Writer& writer) { encode_segments_reply(*infos, writer); });
}

std::optional<Buffer> keys_again(Bytes body) {
    const auto message = parse_keys_request(body);
    if (!message) return std::nullopt;
    std::vector<std::uint32_t> counts;
    for (std::size_t i = 0; i < message->read_counts.size() / sizeof(std::uint32_t); ++i) {
        counts.push_back(message->read_count(i));
    }
    return packed([&](Writer& writer) {
        encode_keys_request(message->request.prefix, list_of(message->request.avoid), list_of(message->keys),
                            writer, counts);
    });
}

std::optional<Buffer> statuses_again(Bytes body) {
    const auto statuses = parse_statuses(body);
    if (!statuses) return std::nullopt;
    return packed([&](Writer& writer) { encode_statuses(*statuses, writer); });
}

std::optional<Buffer> put_start_again(Bytes body) {
    const auto message = parse_put_start(body);
    if (!message) return std::nullopt;
    std::vector<std::uint64_t> sizes;
    std::vector<std::uint64_t> parents;
    for (std::size_t i = 0; i < message->keys.count(); ++i) {
        sizes.push_back(message->size(i));
        parents.push_back(message->parent(i));
    }
    return packed([&](Writer& writer) {
        encode_put_start(message->request.prefix, list_of(message->request.avoid), message->options,
                         message->preferred, list_of(message->keys), sizes, parents, writer);
    });
}

std::optional<Buffer> put_end_again(Bytes body) {
    const auto message = parse_put_end(body);
    if (!message || message->request.avoid.count() > 0) return std::nullopt;
    return packed([&](Writer& writer) {
        encode_put_end(message->request.prefix, message->items, message->results, writer);
    });
}

std::optional<Buffer> put_revoke_again(Bytes body) {
    const auto message = parse_put_revoke(body);
    if (!message || message->request.avoid.count() > 0) return std::nullopt;
    return packed(
        [&](Writer& writer) { encode_put_revoke(message->request.prefix, message->put_ids, writer); });
}

std::optional<Buffer> list_again(Bytes body) {
    const auto message = parse_list(body);
    if (!message || message->request.avoid.count() > 0) return std::nullopt;
    return packed([&](Writer& writer) {
        encode_list(message->request.prefix, message->cursor, message->limit, message->key_prefix, writer);
    });
}

std::optional<Buffer> list_reply_again(Bytes body) {
    const auto reply = parse_list_reply(body);
    if (!reply) return std::nullopt;
    return packed([&](Writer& writer) { encode_list_reply(reply->cursor, reply->objects, writer); });
}

std::optional<Buffer> stats_again(Bytes body) {
    const auto stats = parse_stats(body);
    if (!stats) return std::nullopt;
    return packed([&](Writer& writer) { encode_stats(*stats, writer); });
}

template <class Record>
std::optional<Buffer> places_again(Bytes body) {
    const auto view = Places<Record>::parse(body);
    if (!view) return std::nullopt;
    return packed([&](Writer& writer) {
        std::size_t places = 0;
        writer.put(view->count);
        writer.put(std::uint32_t{0});
        for (std::size_t i = 0; i < view->count; ++i) {
            const Record record = view->record(i);
            places += record.replica_count;
            writer.put(record);
        }
        for (std::size_t i = 0; i < places; ++i) writer.put(view->place(i));
    });
}

std::optional<Buffer> copy_again(Bytes body) {
    const auto message = parse_copy(body);
    if (!message) return std::nullopt;
    REQUIRE(message->endpoints.size() <= kEndpointsMax && message->size <= kValueBytesMax);
    return packed([&](Writer& writer) { encode(*message, writer); });
}

std::optional<Buffer> copy_reply_again(Bytes body) {
    const auto message = parse_copy_reply(body);
    if (!message) return std::nullopt;
    return packed([&](Writer& writer) { encode(*message, writer); });
}

std::optional<Buffer> drain_reply_again(Bytes body) {
    const auto message = parse_drain_reply(body);
    if (!message) return std::nullopt;
    return packed([&](Writer& writer) { encode(*message, writer); });
}

std::optional<Buffer> create_task_again(Bytes body) {
    const auto message = parse_create_task(body);
    if (!message || message->request.avoid.count() > 0) return std::nullopt;
    REQUIRE(!message->key.empty() && message->targets.size() <= kTaskTargetsMax);
    return packed([&](Writer& writer) {
        encode_create_task(message->request.prefix, message->key, message->source, message->targets, writer);
    });
}

std::optional<Buffer> query_task_again(Bytes body) {
    const auto message = parse_query_task(body);
    if (!message || message->request.avoid.count() > 0) return std::nullopt;
    return packed([&](Writer& writer) { encode_query_task(message->request.prefix, message->task, writer); });
}

std::optional<Buffer> told_task_again(Bytes body) {
    const auto message = parse_told_task(body);
    if (!message) return std::nullopt;
    REQUIRE(message->message.size() <= kTaskMessageBytesMax);
    return packed([&](Writer& writer) { encode(*message, writer); });
}

std::optional<Buffer> retire_again(Bytes body) {
    const auto message = parse_retire(body);
    if (!message) return std::nullopt;
    return packed([&](Writer& writer) { encode_retire(message->command_id, message->replicas, writer); });
}

std::optional<Buffer> retire_reply_again(Bytes body) {
    const auto message = parse_retire_reply(body);
    if (!message) return std::nullopt;
    return packed([&](Writer& writer) { encode_retire_reply(message->command_id, message->freed, writer); });
}

std::optional<Buffer> report_again(Bytes body) {
    const auto message = parse_report(body);
    if (!message || message->request.avoid.count() > 0) return std::nullopt;
    return packed([&](Writer& writer) {
        encode_report(message->request.prefix, message->last_command_id, message->settled_id,
                      message->segments, message->freed, writer);
    });
}

std::optional<Buffer> report_reply_again(Bytes body) {
    const auto message = parse_report_reply(body);
    if (!message) return std::nullopt;
    return packed([&](Writer& writer) { encode_report_reply(*message, writer); });
}

std::optional<Buffer> holdings_again(Bytes body) {
    const auto message = parse_holdings(body);
    if (!message || message->request.avoid.count() > 0) return std::nullopt;
    return packed([&](Writer& writer) {
        encode_holdings(message->request.prefix, message->comparison, message->flags, message->replicas,
                        writer);
    });
}

std::optional<Buffer> tombstones_again(Bytes body) {
    const auto message = parse_tombstones(body);
    if (!message) return std::nullopt;
    return packed([&](Writer& writer) { encode(*message, writer); });
}

std::optional<Buffer> inventory_again(Bytes body) {
    const auto message = parse_inventory(body);
    if (!message || message->request.avoid.count() > 0) return std::nullopt;
    REQUIRE(message->headers.size() == message->items.size());
    Buffer headers;
    Writer header_writer(headers);
    for (std::size_t i = 0; i < message->items.size(); ++i) {
        const std::size_t before = headers.size();
        encode(message->headers[i], header_writer);
        REQUIRE(headers.size() - before == message->items[i].header_bytes);
    }
    return packed([&](Writer& writer) {
        encode_inventory(message->request.prefix, message->flags, message->totals, message->items, headers,
                         writer);
    });
}

std::optional<Buffer> read_again(Bytes body) {
    const auto message = parse_read(body);
    if (!message) return std::nullopt;
    return packed([&](Writer& writer) { encode_read(message->flags, message->items, writer); });
}

std::optional<Buffer> read_reply_again(Bytes body) {
    const auto reply = parse_read_reply(body);
    if (!reply) return std::nullopt;
    std::uint64_t payload = 0;
    for (const auto& piece : reply->pieces) {
        REQUIRE(piece.length <= kChunkBytesMax);
        payload += piece.length + sizeof(Verdict);
    }
    REQUIRE(payload == reply->payload_bytes);
    return packed([&](Writer& writer) { encode_read_reply(reply->pieces, reply->metadata, writer); });
}

std::optional<Buffer> write_again(Bytes body) {
    const auto message = parse_write(body);
    if (!message) return std::nullopt;
    std::vector<Buffer> headers;
    std::uint64_t payload = 0;
    for (std::size_t i = 0; i < message->items.size(); ++i) {
        headers.emplace_back(message->headers[i].begin(), message->headers[i].end());
        payload += message->items[i].length;
    }
    REQUIRE(payload == message->payload_bytes);
    return packed([&](Writer& writer) { encode_write(message->items, headers, writer); });
}

std::optional<Buffer> transfer_again(Bytes body) {
    const auto message = parse_transfer(body);
    if (!message) return std::nullopt;
    std::uint64_t payload = 0;
    for (const auto& range : message->ranges) {
        REQUIRE(range.length > 0 && range.address + range.length >= range.address);
        payload += range.length;
    }
    REQUIRE(payload == message->payload_bytes && payload <= kValueBytesMax);
    return packed([&](Writer& writer) { encode_transfer(message->ranges, writer); });
}

std::optional<Buffer> memory_range_again(Bytes body) {
    const auto range = parse_memory_range(body);
    if (!range) return std::nullopt;
    return packed([&](Writer& writer) { writer.put(*range); });
}

// Not a parser: the checksum of any bytes, cut anywhere, is the same one by every implementation.
std::optional<Buffer> checksum_again(Bytes body) {
    fuzz::Input input(body);
    const auto seed = input.u32();
    const std::size_t wanted = input.u16();
    const Bytes bytes = input.rest();
    const std::size_t cut = std::min(wanted, bytes.size());
    const std::uint32_t whole = crc32c(seed, bytes.data(), bytes.size());
    const std::uint32_t first = crc32c(seed, bytes.data(), cut);
    REQUIRE(crc32c(first, bytes.data() + cut, bytes.size() - cut) == whole);
    const std::uint32_t second = crc32c(0, bytes.data() + cut, bytes.size() - cut);
    REQUIRE(crc32c_combine(first, second, bytes.size() - cut) == whole);
    const std::string_view text = as_text(bytes);
    const std::string_view tenant = text.substr(0, std::min(cut, kTenantBytesMax));
    static_cast<void>(key_digest(tenant, text.substr(cut)));
    static_cast<void>(value_checksum_seed(tenant, text.substr(cut), seed));
    return std::nullopt;
}

struct Codec {
    const char* name;
    Again again;
    bool keeps_length;  // false: bytes that a later version may add at the end are left out
};

constexpr std::array kCodecs = {
    Codec{"frame_header", frame_header_again, false},
    Codec{"hello", again<parse_hello>, false},
    Codec{"welcome", again<parse_welcome>, false},
    Codec{"open_session", again<parse_open_session>, true},
    Codec{"open_session_reply", again<parse_open_session_reply>, true},
    Codec{"mount", mount_again, true},
    Codec{"mount_reply", mount_reply_again, true},
    Codec{"segment_ids", segment_ids_again, true},
    Codec{"segments_reply", segments_reply_again, true},
    Codec{"keys", keys_again, true},
    Codec{"statuses", statuses_again, true},
    Codec{"put_start", put_start_again, true},
    Codec{"put_end", put_end_again, true},
    Codec{"put_revoke", put_revoke_again, true},
    Codec{"list", list_again, true},
    Codec{"list_reply", list_reply_again, true},
    Codec{"stats", stats_again, true},
    Codec{"lookup_reply", places_again<LookupRecord>, true},
    Codec{"put_start_reply", places_again<GrantRecord>, true},
    Codec{"retire", retire_again, true},
    Codec{"retire_reply", retire_reply_again, true},
    Codec{"copy", copy_again, true},
    Codec{"copy_reply", copy_reply_again, true},
    Codec{"drain_reply", drain_reply_again, true},
    Codec{"report", report_again, true},
    Codec{"report_reply", report_reply_again, true},
    Codec{"inventory", inventory_again, true},
    Codec{"read", read_again, true},
    Codec{"read_reply", read_reply_again, true},
    Codec{"write", write_again, true},
    Codec{"value_header", again<parse_value_header>, true},
    Codec{"checksum", checksum_again, true},
    Codec{"tombstones", tombstones_again, true},
    Codec{"holdings", holdings_again, true},
    Codec{"create_task", create_task_again, true},
    Codec{"query_task", query_task_again, true},
    Codec{"told_task", told_task_again, true},
    Codec{"transfer", transfer_again, true},
    Codec{"notice", again<parse_notice>, true},
    Codec{"memory_range", memory_range_again, true},
};

std::vector<std::pair<std::string, Buffer>> messages() {
    const Prefix prefix{7, 1, 0, 0};
    const std::array<SegmentId, 2> ids{11, 12};
    const std::array<std::string_view, 3> keys{"a", "layer/0", ""};
    const std::array<std::uint64_t, 3> sizes{0, 65'536, 1};
    const std::array statuses{Status::kOk, Status::kGone};
    SegmentDescription segment;
    segment.capacity_bytes = 1 << 20;
    segment.name = "node:1";
    segment.host_id = "host";
    segment.endpoints = {"tcp://10.0.0.7:41234", "shm:///x"};
    Hello hello;
    hello.software = "1.0";
    hello.tenant = "t";
    Welcome welcome;
    welcome.software = "1.0";
    OpenSession open;
    open.name = "engine";
    open.host_id = "host";
    open.tenant = "t";
    SegmentInfo info;
    info.segment = 11;
    info.description = segment;
    ValueHeader value;
    value.put_id = 9;
    value.size = 4096;
    value.flags = kValueHasChecksum;
    value.tenant = "t";
    value.key = "a";
    value.user_metadata = "float16";
    const Buffer header = packed([&](Writer& w) { encode(value, w); });
    const std::vector<Buffer> headers{header, header};
    const auto header_bytes = static_cast<std::uint32_t>(header.size());
    const std::array<WriteItem, 2> writes{WriteItem{5, 11, 4096, header_bytes, 0},
                                          {6, 12, 4096, header_bytes, 0}};
    const std::array<Piece, 2> pieces{Piece{0, 0, 7, 8u << 20}, {0, kPieceLast, 0, 100}};
    const std::array<std::string_view, 2> metadata{"float16", ""};
    const std::array<PutEndItem, 2> ends{PutEndItem{9, 1, 0}, {10, 1, 0}};
    const std::array<ReplicaResult, 2> results{ReplicaResult{5, Status::kOk, 0, 0},
                                               {6, Status::kNoRange, 0, 0}};
    const std::array<SegmentReport, 1> reports{SegmentReport{11, 1, 2, 3, 4, 5, 6}};
    const std::array<ListedObject, 1> objects{ListedObject{"a", 4096, 9, 1, 2}};
    const std::array<Stat, 1> stats{Stat{"keys_count", 3}};
    const std::array<MountAnswer, 1> mounted{MountAnswer{Status::kOk, 11}};
    return {
        {"frame_header", packed([&](Writer& w) { w.put(FrameHeader{}); })},
        {"hello", packed([&](Writer& w) { encode(hello, w); })},
        {"welcome", packed([&](Writer& w) { encode(welcome, w); })},
        {"open_session", packed([&](Writer& w) { encode(open, w); })},
        {"open_session_reply", packed([&](Writer& w) { encode(OpenSessionReply{7, 1, {}, 1, 2, 3, 4}, w); })},
        {"mount", packed([&](Writer& w) { encode_mount(prefix, {}, std::array{segment, segment}, w); })},
        {"mount_reply", packed([&](Writer& w) { encode_mount_reply(mounted, w); })},
        {"segment_ids", packed([&](Writer& w) { encode_segment_ids(prefix, ids, w); })},
        {"segments_reply", packed([&](Writer& w) { encode_segments_reply(std::array{info, info}, w); })},
        {"keys", packed([&](Writer& w) { encode_keys_request(prefix, ids, keys, w); })},
        {"statuses", packed([&](Writer& w) { encode_statuses(statuses, w); })},
        {"put_start", packed([&](Writer& w) {
             encode_put_start(prefix, ids, {2, kPutSoftPin, 0, 5, 6},
                              std::array<std::string_view, 1>{"node:1"}, keys, sizes, sizes, w);
         })},
        {"put_end", packed([&](Writer& w) { encode_put_end(prefix, ends, results, w); })},
        {"put_revoke", packed([&](Writer& w) { encode_put_revoke(prefix, ids, w); })},
        {"list", packed([&](Writer& w) { encode_list(prefix, 0, 10, "layer/", w); })},
        {"list_reply", packed([&](Writer& w) { encode_list_reply(3, objects, w); })},
        {"stats", packed([&](Writer& w) { encode_stats(stats, w); })},
        {"lookup_reply", packed([&](Writer& w) {
             w.put(std::uint64_t{1});
             w.put(LookupRecord{Status::kOk, 2, 0, 5, 9, 4096});
             w.put(ReplicaPlace{5, 11});
             w.put(ReplicaPlace{6, 12});
         })},
        {"put_start_reply", packed([&](Writer& w) {
             w.put(std::uint64_t{1});
             w.put(GrantRecord{Status::kOk, 1, 0, 0, 9});
             w.put(ReplicaPlace{5, 11});
         })},
        {"retire", packed([&](Writer& w) { encode_retire(1, ids, w); })},
        {"retire_reply", packed([&](Writer& w) { encode_retire_reply(1, ids, w); })},
        {"copy", packed([&](Writer& w) {
             encode(Copy{9, 11, 5, 1, 7, 100, 10'000, {"tcp://n:1", "tcp://m:2"}}, w);
         })},
        {"copy_reply", packed([&](Writer& w) { encode(CopyReply{9, Status::kGone}, w); })},
        {"drain_reply", packed([&](Writer& w) { encode(DrainReply{3, 4}, w); })},
        {"report", packed([&](Writer& w) { encode_report(prefix, 1, 7, reports, ids, w); })},
        {"report_reply",
         packed([&](Writer& w) { encode_report_reply({1, 2, 3, 4, {ids.begin(), ids.end()}}, w); })},
        {"inventory", packed([&](Writer& w) {
             const std::array<InventoryItem, 1> items{InventoryItem{5, 11, header_bytes, 0}};
             encode_inventory(prefix, kInventoryFirst | kInventoryLast, {1, mix64(5)}, items, header, w);
         })},
        {"read", packed([&](Writer& w) {
             encode_read(kReadUserMetadata, std::array{ReadItem{5, 1, 0, 10}, ReadItem{6, 2, 10}}, w);
         })},
        {"read_reply", packed([&](Writer& w) { encode_read_reply(pieces, metadata, w); })},
        {"write", packed([&](Writer& w) { encode_write(writes, headers, w); })},
        {"value_header", header},
        {"checksum", Buffer(300, 0x5A)},
        {"tombstones",
         packed([&](Writer& w) { encode(Tombstones{2, 1, {Uuid{1}}, {{Uuid{2}, 3}}, {4}, {{5, 6}}}, w); })},
        {"holdings", packed([&](Writer& w) { encode_holdings(prefix, 5, kHoldingsLast, ids, w); })},
        {"create_task", packed([&](Writer& w) {
             encode_create_task(prefix, "a", "node:1", std::span(keys).subspan(1, 1), w);
         })},
        {"query_task", packed([&](Writer& w) { encode_query_task(prefix, 5, w); })},
        {"told_task", packed([&](Writer& w) {
             encode(ToldTask{{5, 10, 1, 7, TaskType::kMove, TaskStatus::kSuccess, 0, 0}, "moved"}, w);
         })},
        {"transfer", packed([&](Writer& w) {
             encode_transfer(std::array{MemoryRange{4096, 100}, MemoryRange{1u << 30, 8u << 20}}, w);
         })},
        {"notice", packed([&](Writer& w) { encode(Notice{"name", "message"}, w); })},
        {"memory_range", packed([&](Writer& w) { w.put(MemoryRange{4096, 100}); })},
    };
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input({data, size});
    const Codec& codec = kCodecs[input.below(kCodecs.size())];
    const Bytes body = input.rest();
    const auto once = codec.again(body);
    if (!once) return 0;
    if (codec.keeps_length) REQUIRE(once->size() == body.size());
    const auto twice = codec.again(*once);
    REQUIRE(twice.has_value());
    REQUIRE(*twice == *once);
    return 0;
}

std::vector<std::pair<std::string, Buffer>> fuzz::seeds() {
    std::vector<std::pair<std::string, Buffer>> made;
    std::size_t index = 0;
    for (const auto& [name, body] : messages()) {
        const Codec& codec = kCodecs[index];
        REQUIRE(codec.name == name);
        if (name != "checksum") REQUIRE(codec.again(body) == body);
        made.emplace_back(name, Script().u8(index++).bytes(body));
    }
    return made;
}
