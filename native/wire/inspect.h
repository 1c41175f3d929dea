// inspect: what the master knows of one key, segment or node now, and what its journal remembers of it; for
// operators. Layouts: proto/FRAMES.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "wire/lane.h"

namespace mooncake::wire {

inline constexpr std::uint32_t kEventsShownMax = 1'024;  // in one answer
inline constexpr std::uint32_t kEventsShownDefault = 100;
inline constexpr std::size_t kCopiesShownMax = 256;
inline constexpr std::size_t kSegmentsShownMax = 64;

enum class Subject : std::uint8_t {
    kPool = 0,  // sessions, segments and reigns: what happened lately; no name
    kKey = 1,
    kName = 2,  // of a segment, a node (its session) or a host
};

// Prefix, u8 subject, 3 zero bytes, u32 limit of events (0 = kEventsShownDefault), text16 key or name.
struct Inspect {
    Request request;
    Subject subject = Subject::kPool;
    std::uint32_t limit = 0;
    std::string_view name;
};
void encode_inspect(const Prefix& prefix, std::span<const SegmentId> avoid, Subject subject,
                    std::uint32_t limit, std::string_view name, Writer& writer);
std::optional<Inspect> parse_inspect(Bytes body);

enum class EventKind : std::uint8_t {
    // Of one copy of a value: `id` is its replica_id.
    kPlaced = 1,      // put_start reserved room
    kCommitted = 2,   // put_end: readable
    kFailed = 3,      // put_end: not written
    kRevoked = 4,     // its put was given up, or its writer went
    kReaped = 5,      // its put was not ended for put_start_release_timeout
    kSuperseded = 6,  // a newer value took its place
    kRemoved = 7,
    kEvicted = 8,
    kExpired = 9,     // TTL
    kFreed = 10,      // the node gave its range back
    kLost = 11,       // its segment left the pool
    kAdopted = 12,    // told by a node that held it from an earlier reign
    kCopyBegun = 13,  // its node was told to fetch it from another
    kCopied = 14,     // and has it: readable
    kCopyFailed = 15,
    kMoved = 16,      // it was copied elsewhere, to go here
    kForgotten = 17,  // its node does not hold it

    // Of sessions, segments and reigns.
    kSessionOpened = 20,
    kSessionEnded = 21,
    kConnectionLost = 22,  // the last connection of the session
    kSegmentMounted = 23,
    kSegmentTold = 24,  // its node has told all that it held from an earlier reign
    kSegmentLeft = 25,
    kEpochTaken = 26,           // number: the epoch
    kRebuildEnded = 27,         // number: copies taken in
    kReportedUnreachable = 28,  // a client cannot reach the node; session: the node's
    kProbeAnswered = 29,        // and the master can
    kProbeFailed = 30,          // nor can the master
    kSegmentDraining = 31,      // its node is about to leave
    kSegmentDiffers = 32,       // its node holds other replicas than the master believes
    kSegmentReconciled = 33,    // number: replicas that were ended there, or forgotten here
    kDeposed = 34,              // number: the epoch of the master that reigns instead of this one
};
inline constexpr std::uint8_t kEventKindMax = 34;

enum class EventReason : std::uint8_t {
    kNone = 0,
    kAsked = 1,        // said goodbye, or unmounted
    kSilent = 2,       // not heard for client_ttl
    kStalled = 3,      // left a retire unanswered for client_ttl
    kUnreachable = 4,  // neither peers nor the master reached it
    kReplaced = 5,     // by a newer incarnation
    kRefused = 6,      // a dial was
    kReset = 7,        // a connection broke
    kTimedOut = 8,
};
inline constexpr std::uint8_t kEventReasonMax = 8;

struct EventRecord {
    std::uint64_t ms_ago = 0;
    std::uint64_t id = 0;
    SegmentId segment = 0;
    SessionId session = 0;
    std::uint64_t number = 0;
    EventKind kind = EventKind::kPlaced;
    EventReason reason = EventReason::kNone;
    std::uint16_t zero = 0;
    std::uint32_t zero2 = 0;
};
static_assert(sizeof(EventRecord) == 48);
struct ToldEvent {
    EventRecord record;
    std::string_view name;  // of the segment, or of the session where there is none
};

// What the key is now. Times are what remains; 0 = none.
struct KeyRecord {
    Status status = Status::kOk;  // status, reason, ended_ms_ago: as why answers
    Absence reason = Absence::kPresent;
    std::uint8_t flags = 0;  // PutFlags: hard, soft pin
    std::uint32_t lease_count = 0;
    std::uint64_t ended_ms_ago = 0;
    PutId put_id = 0;
    std::uint64_t size = 0;
    std::uint64_t lease_ms = 0;
    std::uint64_t hold_ms = 0;
    std::uint64_t soft_pin_ms = 0;
    std::uint64_t ttl_ms = 0;
    PutId unfinished_put_id = 0;  // 0 = no put is under way
    std::uint64_t unfinished_size = 0;
    std::uint64_t unfinished_age_ms = 0;
    SessionId unfinished_owner = 0;
};
static_assert(sizeof(KeyRecord) == 96);

enum class CopyStatus : std::uint8_t { kUnfinished = 1, kLive = 2, kRetiring = 3, kCopying = 4 };
struct CopyRecord {
    ReplicaId replica = 0;
    SegmentId segment = 0;
    std::uint64_t charged_bytes = 0;
    CopyStatus status = CopyStatus::kLive;
    Tier tier = Tier::kDram;
    std::uint8_t has_left = 0;  // 1: its segment is out of the pool
    std::uint8_t zero = 0;
    std::uint32_t zero2 = 0;
};
static_assert(sizeof(CopyRecord) == 32);
struct ToldCopy {
    CopyRecord record;
    std::string_view segment_name;
    std::string_view host_id;
};

enum SegmentFlags : std::uint8_t {
    kSegmentConnected = 1,  // its node's control connection is open
    kSegmentTold = 2,       // puts may go there: its node has told all that it held
    kSegmentSuspected = 4,  // clients report that they cannot reach it
};
struct SegmentRecord {
    SegmentId segment = 0;
    SessionId owner = 0;
    std::uint64_t capacity_bytes = 0;
    std::uint64_t charged_bytes = 0;
    std::uint64_t retiring_bytes = 0;
    std::uint64_t replica_count = 0;
    std::uint64_t heard_ms_ago = 0;
    Tier tier = Tier::kDram;
    std::uint8_t flags = 0;  // SegmentFlags
    std::uint16_t zero = 0;
    std::uint32_t zero2 = 0;
};
static_assert(sizeof(SegmentRecord) == 64);
struct ToldSegment {
    SegmentRecord record;
    std::string_view name;
    std::string_view host_id;
    std::string_view owner_name;
    std::string_view endpoint;
};

// u64 events dropped, u64 age of the oldest kept, u8 has a key, u8 events left out, 6 zero bytes; of a key
// the KeyRecord and text16 owner of the unfinished put; then u32 count each of copies, segments and events,
// the events newest first, each with its texts.
struct InspectReply {
    std::uint64_t dropped_events = 0;       // forgotten by the bounded journal, since the master's start
    std::uint64_t oldest_event_ms_ago = 0;  // of what it still holds
    bool has_older_events = false;          // more than `limit` of this subject
    std::optional<KeyRecord> key;
    std::string_view unfinished_owner_name;
    std::vector<ToldCopy> copies;
    std::vector<ToldSegment> segments;
    std::vector<ToldEvent> events;
};
void encode_inspect_reply(const InspectReply& reply, Writer& writer);
std::optional<InspectReply> parse_inspect_reply(Bytes body);

}  // namespace mooncake::wire
