// Bodies of the lane's frames: sessions, segments and the object verbs. The same packed bodies are what the
// gRPC door hands to the state machine, so the two doors cannot disagree. Layouts: proto/FRAMES.md.
//
// parse_* take a whole body and answer nullopt when it is malformed (bytes left over included); what they
// return views into that body.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/ids.h"
#include "wire/key_list.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace mooncake::wire {

// ---- what every verb but hello and open_session begins with
// ----------------------------------------------------

struct Prefix {
    SessionId session = 0;
    std::uint64_t sequence = 0;  // of a mutating request, 1 and up, unique in its session; 0 in the others
    std::uint32_t flags = 0;     // RequestFlags
    std::uint32_t avoid_count = 0;
};
static_assert(sizeof(Prefix) == 24);

enum RequestFlags : std::uint32_t {
    kRemoveForce = 1,  // remove: also while a lease is held
    // exists, match_prefix, lookup: neither touch recency nor hold nor lease nor count (operators' questions)
    kWithoutHold = 2,
    // remove: of each value only the copies on the segments of the list, which else names those out of reach
    kRemoveCopies = 8,
    // touch: these values were read where an earlier lookup had found them, each as often as the u32 says
    // that follows the keys, one each
    kReadBefore = 16,
};

// Segments this client cannot reach now: replicas there count as absent for it, and nothing is placed there.
class AvoidList {
  public:
    AvoidList() = default;
    explicit AvoidList(Bytes ids) : ids_(ids) {}
    std::size_t count() const { return ids_.size() / 8; }
    SegmentId at(std::size_t i) const {
        SegmentId id;
        std::memcpy(&id, ids_.data() + i * 8, 8);
        return id;
    }
    bool contains(SegmentId id) const {
        for (std::size_t i = 0; i < count(); ++i) {
            if (at(i) == id) return true;
        }
        return false;
    }

  private:
    Bytes ids_;
};

struct Request {
    Prefix prefix;
    AvoidList avoid;
};
void encode_prefix(const Prefix& prefix, std::span<const SegmentId> avoid, Writer& writer);
Request parse_prefix(Reader& reader);

// ---- sessions
// ---------------------------------------------------------------------------------------------------

struct OpenSession {
    Uuid process{};            // asking again with the same uuid gives the same session
    std::string_view name;     // for people
    std::string_view host_id;  // where the process runs: replicas and placement look at it
    std::string_view tenant;   // the namespace of every key of this session
};
void encode(const OpenSession& message, Writer& writer);
std::optional<OpenSession> parse_open_session(Bytes body);

struct OpenSessionReply {
    SessionId session = 0;
    std::uint64_t epoch = 0;
    Uuid master{};
    std::uint32_t client_ttl_ms = 0;
    std::uint32_t heartbeat_interval_ms = 0;
    std::uint32_t lease_ttl_ms = 0;
    std::uint32_t exists_hold_ms = 0;
};
void encode(const OpenSessionReply& message, Writer& writer);
std::optional<OpenSessionReply> parse_open_session_reply(Bytes body);

// How a client found out that it cannot reach a segment's node.
enum class PeerFailure : std::uint8_t {
    kUnknown = 0,
    kRefused = 1,   // a dial was
    kReset = 2,     // a connection broke
    kTimedOut = 3,  // a dial or an answer took too long
};

// heartbeat: Prefix with avoid = the segments this client found unreachable (its report about peers), then
// nothing, or a u8 PeerFailure for each of them; reply: no body. close_session: Prefix; reply: no body. Both
// answer SESSION_UNKNOWN for the whole frame where it applies.
struct Heartbeat {
    Request request;
    Bytes failures;

    PeerFailure failure(std::size_t i) const {
        const bool is_known = i < failures.size() && failures[i] <= 3;
        return is_known ? static_cast<PeerFailure>(failures[i]) : PeerFailure::kUnknown;
    }
};
void encode_heartbeat(const Prefix& prefix, std::span<const SegmentId> avoid,
                      std::span<const PeerFailure> failures, Writer& writer);
std::optional<Heartbeat> parse_heartbeat(Bytes body);

// ---- segments
// ---------------------------------------------------------------------------------------------------

enum class Tier : std::uint8_t { kDram = 1, kSsd = 2 };

struct SegmentDescription {
    Tier tier = Tier::kDram;
    std::uint64_t capacity_bytes = 0;
    Uuid incarnation{};     // this life of the segment: a memory segment's is its node process's
    std::string_view name;  // unique in the cluster while mounted
    std::string_view host_id;
    std::vector<std::string_view> endpoints;  // "tcp://10.0.0.7:41234"
};

enum MountFlags : std::uint32_t {
    // The node holds values of an earlier reign: an inventory follows, and nothing is granted before its end.
    kMountWithInventory = 1,
};
struct MountOrigin {
    std::uint64_t known_epoch = 0;  // the highest reign this node has followed, and of which master
    Uuid known_master{};
    std::uint32_t flags = 0;  // MountFlags
};
struct Mount {
    Request request;
    MountOrigin origin;
    std::vector<SegmentDescription> segments;
};
void encode_mount(const Prefix& prefix, const MountOrigin& origin,
                  std::span<const SegmentDescription> segments, Writer& writer);
std::optional<Mount> parse_mount(Bytes body);

struct MountAnswer {
    Status status = Status::kOk;
    SegmentId segment = 0;
};
// u32 count, then {i16 status, 6 bytes zero, u64 segment} each.
void encode_mount_reply(std::span<const MountAnswer> answers, Writer& writer);
std::optional<std::vector<MountAnswer>> parse_mount_reply(Bytes body);

// unmount and segments: Prefix, u32 count, u64 segment ids (segments: none = all).
void encode_segment_ids(const Prefix& prefix, std::span<const SegmentId> ids, Writer& writer);
struct SegmentIds {
    Request request;
    std::vector<SegmentId> ids;
};
std::optional<SegmentIds> parse_segment_ids(Bytes body);

struct SegmentInfo {
    Status status = Status::kOk;  // SEGMENT_NOT_FOUND: the id is gone for good
    SegmentId segment = 0;
    SessionId owner = 0;
    std::uint64_t charged_bytes = 0;   // live, unfinished and retiring replicas
    std::uint64_t retiring_bytes = 0;  // of those: told to go, not yet reported freed
    std::uint64_t replica_count = 0;
    SegmentDescription description;
};
void encode_segments_reply(std::span<const SegmentInfo> segments, Writer& writer);
std::optional<std::vector<SegmentInfo>> parse_segments_reply(Bytes body);

// ---- exists, match_prefix, lookup, remove, touch, release
// -----------------------------------------------------

// All of them ask with Prefix, KeyList.
struct KeysRequest {
    Request request;
    KeyList keys;
    Bytes read_counts;  // with kReadBefore

    std::uint32_t read_count(std::size_t i) const {
        std::uint32_t count = 0;
        std::memcpy(&count, read_counts.data() + i * sizeof(count), sizeof(count));
        return count;
    }
};
// With kReadBefore in prefix.flags, `read_counts` has one a key.
void encode_keys_request(const Prefix& prefix, std::span<const SegmentId> avoid,
                         std::span<const std::string_view> keys, Writer& writer,
                         std::span<const std::uint32_t> read_counts = {});
std::optional<KeysRequest> parse_keys_request(Bytes body);

// exists, remove, touch, put_end, put_revoke, unmount answer: u32 count, i16 status each. exists: OK =
// present.
void encode_statuses(std::span<const Status> statuses, Writer& writer);
std::optional<std::vector<Status>> parse_statuses(Bytes body);

// why answers: u32 count, u32 zero, then a WhyRecord each. It touches and holds nothing.
enum class Absence : std::uint8_t {
    kPresent = 0,
    kNeverStored = 1,  // or so long ago that the master has forgotten it
    kEvicted = 2,
    kRemoved = 3,
    kExpired = 4,    // its TTL ended
    kLost = 5,       // its last copy went with its node, or its node does not hold it
    kAbandoned = 6,  // its put was not finished: revoked, failed, or its writer went
    kNotReady = 7,   // its put is under way
    kRebuilding = 8,
    kUnreachable = 9,   // only on segments that the asker cannot reach
    kOtherTenant = 10,  // the key exists, under another tenant
};
inline constexpr std::uint8_t kAbsences = 11;
struct WhyRecord {
    Status status = Status::kOk;  // what exists would answer
    Absence reason = Absence::kPresent;
    std::uint8_t zero = 0;
    std::uint32_t zero2 = 0;
    std::uint64_t ended_ms_ago = 0;  // of evicted ... abandoned, to the second
};
static_assert(sizeof(WhyRecord) == 16);
void encode_why_reply(std::span<const WhyRecord> records, Writer& writer);
std::optional<std::vector<WhyRecord>> parse_why_reply(Bytes body);

// match_prefix answers: u32 keys present before the first miss, i16 why the next one is missing (OK: none is
// missing), u16 zero.
struct MatchPrefixReply {
    std::uint32_t length = 0;
    Status miss = Status::kOk;
    std::uint16_t zero = 0;
};
static_assert(sizeof(MatchPrefixReply) == 8);

inline constexpr std::uint64_t kLocationTtlUnitMs = 8;
inline constexpr std::uint64_t kLocationTtlMsMax = 0xFF * kLocationTtlUnitMs;
// lookup answers: u32 count, u32 zero, a LookupRecord each, then the ReplicaPlace of all, in order.
struct LookupRecord {
    Status status = Status::kOk;
    std::uint8_t replica_count = 0;
    // For how long, from the sending of the question, these places may be remembered; 0: not at all.
    std::uint8_t location_ttl = 0;  // in kLocationTtlUnitMs
    std::uint32_t lease_ms = 0;     // how long the master would like to keep it for this reader
    PutId put_id = 0;
    std::uint64_t size = 0;
};
static_assert(sizeof(LookupRecord) == 24);
struct ReplicaPlace {
    ReplicaId replica = 0;
    SegmentId segment = 0;
};
static_assert(sizeof(ReplicaPlace) == 16);

// A checked view of a lookup's or put_start's answer: fixed records, then the places they own, in order.
template <class Record>
struct Places {
    Bytes records;
    Bytes places;
    std::uint32_t count = 0;

    Record record(std::size_t i) const {
        Record value;
        std::memcpy(&value, records.data() + i * sizeof(Record), sizeof(Record));
        return value;
    }
    ReplicaPlace place(std::size_t i) const {
        ReplicaPlace value;
        std::memcpy(&value, places.data() + i * sizeof(ReplicaPlace), sizeof(ReplicaPlace));
        return value;
    }
    static std::optional<Places> parse(Bytes body) {
        Reader reader(body);
        Places view;
        view.count = reader.get<std::uint32_t>();
        reader.get<std::uint32_t>();
        if (view.count > kBatchKeysMax) return std::nullopt;
        view.records = reader.bytes(view.count * sizeof(Record));
        if (!reader.ok()) return std::nullopt;
        std::size_t total = 0;
        for (std::size_t i = 0; i < view.count; ++i) total += view.record(i).replica_count;
        view.places = reader.bytes(total * sizeof(ReplicaPlace));
        if (!reader.finished()) return std::nullopt;
        return view;
    }
};

// ---- put
// ---------------------------------------------------------------------------------------------------------

enum PutFlags : std::uint8_t {
    kPutHardPin = 1,  // never evicted
    kPutSoftPin = 2,  // evicted after everything that is not pinned, for soft_pin_ms
    kPutUpsert = 4,   // a new value even when one is visible
    kPutLocal = 8,    // prefer segments on the session's host
    // With kPutUpsert: what remains of the soft pin of the value that it replaces is the new one's.
    kPutKeepSoftPin = 16,
};

struct PutOptions {
    std::uint8_t replica_count = 1;
    std::uint8_t flags = 0;  // PutFlags
    std::uint16_t preferred_count = 0;
    std::uint32_t soft_pin_ms = 0;  // 0 = the master's default
    std::uint64_t ttl_ms = 0;       // 0 = none
};
static_assert(sizeof(PutOptions) == 16);

// Prefix, PutOptions, preferred segments' names (text16 each), KeyList, u64 size a key, u64 parent digest a
// key (key_digest of the block before it; 0 = none).
struct PutStart {
    Request request;
    PutOptions options;
    std::vector<std::string_view> preferred;
    KeyList keys;
    Bytes sizes;
    Bytes parents;

    std::uint64_t size(std::size_t i) const { return u64_at(sizes, i); }
    std::uint64_t parent(std::size_t i) const { return u64_at(parents, i); }

  private:
    static std::uint64_t u64_at(Bytes bytes, std::size_t i) {
        std::uint64_t value;
        std::memcpy(&value, bytes.data() + i * 8, 8);
        return value;
    }
};
void encode_put_start(const Prefix& prefix, std::span<const SegmentId> avoid, PutOptions options,
                      std::span<const std::string_view> preferred, std::span<const std::string_view> keys,
                      std::span<const std::uint64_t> sizes, std::span<const std::uint64_t> parents,
                      Writer& writer);
std::optional<PutStart> parse_put_start(Bytes body);

// put_start answers like lookup, with GrantRecords. -705: a value is visible; -703: somebody's put is
// unfinished.
struct GrantRecord {
    Status status = Status::kOk;
    std::uint8_t replica_count = 0;
    std::uint8_t zero = 0;
    std::uint32_t zero2 = 0;
    PutId put_id = 0;
};
static_assert(sizeof(GrantRecord) == 16);

// put_end: Prefix, u32 count, u32 results, {u64 put_id, u32 result_count, u32 zero} each, then all results in
// order.
struct PutEndItem {
    PutId put_id = 0;
    std::uint32_t result_count = 0;
    std::uint32_t zero = 0;
};
static_assert(sizeof(PutEndItem) == 16);
struct ReplicaResult {
    ReplicaId replica = 0;
    Status status = Status::kOk;  // OK or SEALED: written whole; anything else: that replica failed
    std::uint16_t zero = 0;
    std::uint32_t zero2 = 0;
};
static_assert(sizeof(ReplicaResult) == 16);
struct PutEnd {
    Request request;
    std::vector<PutEndItem> items;
    std::vector<ReplicaResult> results;
};
void encode_put_end(const Prefix& prefix, std::span<const PutEndItem> items,
                    std::span<const ReplicaResult> results, Writer& writer);
std::optional<PutEnd> parse_put_end(Bytes body);

// put_revoke: Prefix, u32 count, u64 put_ids.
struct PutRevoke {
    Request request;
    std::vector<PutId> put_ids;
};
void encode_put_revoke(const Prefix& prefix, std::span<const PutId> put_ids, Writer& writer);
std::optional<PutRevoke> parse_put_revoke(Bytes body);

// ---- list and stats
// ----------------------------------------------------------------------------------------------

// list: Prefix, u64 cursor (0 = from the start), u32 limit, text16 key prefix.
struct List {
    Request request;
    std::uint64_t cursor = 0;
    std::uint32_t limit = 0;
    std::string_view key_prefix;
};
void encode_list(const Prefix& prefix, std::uint64_t cursor, std::uint32_t limit, std::string_view key_prefix,
                 Writer& writer);
std::optional<List> parse_list(Bytes body);

// Answer: u64 next cursor (0 = that was all), u32 count, then {text16 key, u64 size, u64 put_id, u8 replicas,
// u8 flags}.
struct ListedObject {
    std::string_view key;
    std::uint64_t size = 0;
    PutId put_id = 0;
    std::uint8_t replica_count = 0;
    std::uint8_t flags = 0;  // PutFlags
};
struct ListReply {
    std::uint64_t cursor = 0;
    std::vector<ListedObject> objects;
};
void encode_list_reply(std::uint64_t cursor, std::span<const ListedObject> objects, Writer& writer);
std::optional<ListReply> parse_list_reply(Bytes body);

// stats: Prefix. Answer: u32 count, then {text16 name, u64 value}: counters and gauges by name, units in the
// name.
struct Stat {
    std::string_view name;
    std::uint64_t value = 0;
};
void encode_stats(std::span<const Stat> stats, Writer& writer);
std::optional<std::vector<Stat>> parse_stats(Bytes body);

}  // namespace mooncake::wire
