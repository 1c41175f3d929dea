// Bodies of the frames between the master and a node, on the node's lane connection (role kNode): the
// master's commands and the node's reports. Every frame's header carries the epoch; a node refuses commands
// of an older one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wire/bytes.h"
#include "wire/ids.h"
#include "wire/lane.h"
#include "wire/limits.h"
#include "wire/value_header.h"

namespace mooncake::wire {

// retire, master to node: u64 command_id (rises by one a command of this master to this node), u32 count, u32
// zero, u64 replica_ids. Repeated until answered; ending an id twice, or one never held, is harmless.
struct Retire {
    std::uint64_t command_id = 0;
    std::vector<ReplicaId> replicas;
};
void encode_retire(std::uint64_t command_id, std::span<const ReplicaId> replicas, Writer& writer);
std::optional<Retire> parse_retire(Bytes body);

// Its answer means: none of these is served to a new reader or writer any more. It names those whose range is
// free by now; the others follow in reports. Ids the node did not hold count as freed.
struct RetireReply {
    std::uint64_t command_id = 0;
    std::vector<ReplicaId> freed;
};
void encode_retire_reply(std::uint64_t command_id, std::span<const ReplicaId> freed, Writer& writer);
std::optional<RetireReply> parse_retire_reply(Bytes body);

// copy, master to node: fetch the replica `source` over a data connection from the node that has the
// endpoints, and seal it as `target` on this segment. The read's digest, the header's put_id and size must be
// these. Answered when it is done, at the latest after timeout_ms; told again after a broken connection.
struct Copy {
    ReplicaId target = 0;
    SegmentId segment = 0;
    ReplicaId source = 0;
    std::uint64_t digest = 0;
    PutId put_id = 0;
    std::uint64_t size = 0;
    std::uint64_t timeout_ms = 0;
    std::vector<std::string_view> endpoints;  // of the source, as it mounted them
};
void encode(const Copy& copy, Writer& writer);
std::optional<Copy> parse_copy(Bytes body);

// Its answer: OK or SEALED (it is here, whole), or why not. u64 target, i16 status, 6 zero bytes.
struct CopyReply {
    ReplicaId target = 0;
    Status status = Status::kOk;
};
void encode(const CopyReply& reply, Writer& writer);
std::optional<CopyReply> parse_copy_reply(Bytes body);

// drain, node to master: it is about to leave with these segments (its body is a SegmentIds). From the first
// on nothing is placed there, and the master moves what it can; asked again, it tells how far that is.
struct DrainReply {
    std::uint64_t moved_count = 0;  // replicas that were copied elsewhere and retired here
    std::uint64_t left_count = 0;   // 0: nothing more will be moved
};
void encode(const DrainReply& reply, Writer& writer);
std::optional<DrainReply> parse_drain_reply(Bytes body);

// report, node to master: the node's heartbeat (it keeps the node's session alive too), at once when ranges
// were freed. Freed ids are repeated until a reply came; the master ignores those it knows to be free.
struct SegmentReport {
    SegmentId segment = 0;
    std::uint64_t ready_bytes = 0;      // faulted in; the rest is being prepared
    std::uint64_t receiving_bytes = 0;  // ranges of writes under way
    std::uint64_t draining_bytes = 0;   // retired, still referenced
    std::uint64_t largest_free_bytes = 0;
    std::uint64_t sealed_count = 0;     // replicas at or below the report's settled_id, and
    std::uint64_t sealed_checksum = 0;  // the xor of mix64(replica_id) over them
};
static_assert(sizeof(SegmentReport) == 56);
struct Report {
    Request request;
    std::uint64_t last_command_id = 0;  // the latest retire carried out
    ReplicaId settled_id = 0;           // as the master told it last
    std::vector<SegmentReport> segments;
    std::vector<ReplicaId> freed;
};
void encode_report(const Prefix& prefix, std::uint64_t last_command_id, ReplicaId settled_id,
                   std::span<const SegmentReport> segments, std::span<const ReplicaId> freed, Writer& writer);
std::optional<Report> parse_report(Bytes body);

// Its answer: no put or task at or below settled_id is unfinished; unknown segments must be mounted again
// (their ids are named: the master expelled them or is new).
struct ReportReply {
    std::uint64_t settled_id = 0;
    // Of what the master would have its nodes keep (wire/tombstones.h); another number: ask for it.
    std::uint64_t tombstones_generation = 0;
    // Counts or checksums differ on this segment: the master wants the node's list of it (holdings), and
    // knows it by the number. 0: of none.
    std::uint64_t comparison = 0;
    SegmentId compared_segment = 0;
    std::vector<SegmentId> unknown_segments;
};
void encode_report_reply(const ReportReply& reply, Writer& writer);
std::optional<ReportReply> parse_report_reply(Bytes body);

// inventory, node to master: what the node holds sealed, to a master that did not grant it; chunk by chunk,
// the next when the one before was answered (no body). total_count and total_checksum (xor of
// mix64(replica_id)) run over the whole inventory, this chunk included: where they differ from what the
// master counted, it refuses, and the node begins again. Headers carry what remains of TTL and soft pin.
enum InventoryFlags : std::uint32_t { kInventoryFirst = 1, kInventoryLast = 2 };
struct InventoryItem {
    ReplicaId replica = 0;
    SegmentId segment = 0;  // as this master named it
    std::uint32_t header_bytes = 0;
    std::uint32_t zero = 0;
};
static_assert(sizeof(InventoryItem) == 24);
struct InventoryTotals {
    std::uint64_t count = 0;
    std::uint64_t checksum = 0;
    void add(ReplicaId replica);
    void remove(ReplicaId replica);
    void add(const InventoryTotals& other);
    bool operator==(const InventoryTotals&) const = default;
};
struct Inventory {
    Request request;
    std::uint32_t flags = 0;  // InventoryFlags
    InventoryTotals totals;
    std::vector<InventoryItem> items;
    std::vector<ValueHeader> headers;  // one an item; they view into the body
};
void encode_inventory(const Prefix& prefix, std::uint32_t flags, const InventoryTotals& totals,
                      std::span<const InventoryItem> items, Bytes headers, Writer& writer);
std::optional<Inventory> parse_inventory(Bytes body);

// holdings, node to master: the sealed replicas at or below the settled_id last told, of the segment for
// which a report's answer asked, in any order, chunk by chunk, the next when the one before was answered (no
// body).
enum HoldingsFlags : std::uint32_t { kHoldingsLast = 1 };
struct SettledHoldings {
    Request request;
    std::uint64_t comparison = 0;
    std::uint32_t flags = 0;  // HoldingsFlags
    std::vector<ReplicaId> replicas;
};
void encode_holdings(const Prefix& prefix, std::uint64_t comparison, std::uint32_t flags,
                     std::span<const ReplicaId> replicas, Writer& writer);
std::optional<SettledHoldings> parse_holdings(Bytes body);

// A fixed bijective mixer, so that sealed_checksum does not cancel between neighbouring ids.
constexpr std::uint64_t mix64(std::uint64_t value) {
    value ^= value >> 30;
    value *= 0xBF58476D1CE4E5B9ULL;
    value ^= value >> 27;
    value *= 0x94D049BB133111EBULL;
    return value ^ (value >> 31);
}

inline void InventoryTotals::add(ReplicaId replica) {
    ++count;
    checksum ^= mix64(replica);
}

inline void InventoryTotals::remove(ReplicaId replica) {
    --count;
    checksum ^= mix64(replica);
}

inline void InventoryTotals::add(const InventoryTotals& other) {
    count += other.count;
    checksum ^= other.checksum;
}

}  // namespace mooncake::wire
