// The directory of one node process: which replica lies in which range of which segment, in what state, and
// who still reads it. The rule that makes wrong bytes impossible lives here: no range is given back while a
// receive writes it or a reader holds a reference on it.
//
// Sans-IO: decides, never touches the memory it rules. Time, ids and bytes come from the caller, which also
// serialises the calls (node/locked_directory.h).
//
//     begin_write                seal                 retire, no reader
//  ──────────────► kReceiving ────────► kSealed ─────────────────────────► (range free)
//                   │    │ cancel          │ retire, readers                   ▲
//                   │    └─► (range free)  └──────────────────► kDraining ─────┤ last close: reported freed
//                   └ retire ──► kCancelled ── seal or cancel: reported freed ─┘
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "node/core/range_allocator.h"
#include "wire/bytes.h"
#include "wire/control.h"
#include "wire/data.h"
#include "wire/ids.h"
#include "wire/status.h"

namespace mooncake::node {

// Position of a segment in the node's own list; stays while the master's SegmentId changes with incarnations.
using SegmentIndex = std::uint8_t;

// Values start at a multiple of this, and an empty one costs as much: DESIGN's range_bytes of DRAM.
inline constexpr std::uint64_t kRangeAlignment = 64;

struct DirectoryOptions {
    // Ended ids that are remembered one by one, so that a late write of one is refused. Beyond it the oldest
    // is forgotten and every id up to it counts as ended: a put may have to be tried again, never more.
    std::size_t retired_ids_max = 65'536;
};

// What begin_write grants: receive into [offset, offset + length) of the segment, then seal or cancel.
struct Granted {
    wire::Status status = wire::Status::kOk;  // OK, SEALED, STALE_GRANT, BUSY, NO_RANGE, INVALID_PARAMS
    SegmentIndex segment = 0;
    std::uint64_t offset = 0;
};

class Directory {
  public:
    explicit Directory(DirectoryOptions options = {});
    ~Directory();
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;

    // ---- segments. Nothing is granted on one before attach has named it. What is ready (faulted in) is
    // granted first; beyond it a write pays for the page faults rather than be refused.
    SegmentIndex add_segment(std::uint64_t capacity_bytes);
    void set_ready(SegmentIndex segment, std::uint64_t ready_bytes);
    void attach(SegmentIndex segment, wire::SegmentId id);
    // The master no longer counts this incarnation: nothing of it is served from now on. Referenced ranges
    // drain; sweep gives the others back, in bounded steps (true: nothing is left to do).
    void expel(SegmentIndex segment);
    bool sweep();
    wire::SegmentId segment_id(SegmentIndex segment) const;  // 0: not mounted
    std::uint64_t ready_bytes(SegmentIndex segment) const { return segments_.at(segment).ready_bytes; }

    // ---- whom to obey. Writes of older reigns are refused from adopt on; lower epochs are ignored.
    void adopt(std::uint64_t epoch);
    std::uint64_t epoch() const { return epoch_; }
    // No master heard for client_ttl: nothing is read or written until one is.
    void set_fenced(bool fenced) { fenced_ = fenced; }
    // The caller's clock, from which it counts what remains of a value's times.
    void set_now(std::uint64_t now_ms) { now_ms_ = now_ms; }

    // ---- writing. `header` is an encoded ValueHeader; it is kept. `epoch` is the grant's.
    Granted begin_write(const wire::WriteItem& item, wire::Bytes header, std::uint64_t epoch);
    // The last byte is there: OK, or STALE_GRANT when a retire overtook it (its range is free then).
    wire::Status seal(wire::ReplicaId replica);
    // The receive has ended without success: the memory is not written to any more.
    void cancel(wire::ReplicaId replica);

    // ---- reading. A view is good until its reference is closed, exactly once.
    struct Entry;
    struct View {
        Entry* reference = nullptr;  // nullptr: gone, or the digest belongs to another value
        SegmentIndex segment = 0;
        bool has_checksum = false;
        std::uint32_t checksum = 0;
        std::uint64_t offset = 0;
        std::uint64_t size = 0;
        wire::Bytes header;  // an encoded ValueHeader
    };
    View open(wire::ReplicaId replica, std::uint64_t digest);
    void close(Entry* reference);
    // The header of what is open, TTL and soft pin as they remain now.
    void write_header(const Entry& reference, wire::Writer& writer) const;

    // ---- retiring. Appends to `freed` those whose range is free by now, ids never held included.
    void retire(std::span<const wire::ReplicaId> replicas, std::vector<wire::ReplicaId>& freed);
    // Those whose range became free later, oldest first, at most `max`; the same until acknowledged.
    std::vector<wire::ReplicaId> pending_freed(std::size_t max = wire::kReplicaIdsMax) const;
    void acknowledge_freed(std::size_t count);
    std::size_t pending_freed_count() const { return freed_.size(); }

    // ---- reporting. sealed_count and sealed_checksum cover ids at or below settled_id.
    wire::SegmentReport report(SegmentIndex segment, wire::ReplicaId settled_id);
    // For a master that did not grant what is held (after adopt, when no older grant begins any more): one of
    // kInventoryParts parts a call. What is still being received there is cancelled, since no grant of it is
    // known any more; what is sealed is listed, in any order.
    static constexpr std::size_t kInventoryParts = 256;
    std::vector<wire::ReplicaId> take_inventory(std::size_t part);
    // Appends a sealed replica's line and its header, with what remains of its times. False: it ended since.
    bool describe(wire::ReplicaId replica, std::vector<wire::InventoryItem>& items, wire::Writer& headers);

    // For a master that counts otherwise: the sealed replicas of a segment at or below settled_id, one of
    // kInventoryParts parts a call.
    std::vector<wire::ReplicaId> settled(wire::SegmentId segment, wire::ReplicaId settled_id,
                                         std::size_t part) const;

    struct Counts {
        std::uint64_t replicas = 0;  // in any state
        std::uint64_t sealed = 0;
        std::uint64_t receiving = 0;  // those that a retire overtook included
        std::uint64_t draining = 0;
        std::uint64_t references = 0;
        std::uint64_t capacity_bytes = 0;
        std::uint64_t used_bytes = 0;  // ranges in use, whatever their state
        std::uint64_t header_bytes = 0;
        std::uint64_t gone = 0;               // opens refused because the id is not served
        std::uint64_t digest_mismatches = 0;  // opens refused because the id names another value
        std::uint64_t fenced_refusals = 0;
        std::uint64_t stale_grants = 0;
        std::uint64_t no_ranges = 0;
    };
    Counts counts() const;
    std::size_t segment_count() const { return segments_.size(); }
    std::size_t retired_count() const { return retired_order_.size(); }

    // Throws std::logic_error with what is wrong. Called after every step of every test.
    void check_invariants() const;

    enum class State : std::uint8_t { kReceiving, kCancelled, kSealed, kDraining };
    struct Entry {
        wire::ReplicaId replica = 0;
        std::uint64_t digest = 0;
        std::uint64_t size = 0;  // of the value; its range is range_bytes(size)
        std::uint64_t sealed_ms = 0;
        Range range;
        std::unique_ptr<std::uint8_t[]> header;
        std::uint32_t references = 0;
        std::uint32_t incarnation = 0;  // of its segment, when it was granted
        std::uint32_t checksum = 0;
        std::uint16_t header_bytes = 0;
        SegmentIndex segment = 0;
        State state = State::kReceiving;
        bool has_checksum = false;
    };

  private:
    struct Segment {
        explicit Segment(std::uint64_t capacity) : ranges(capacity, kRangeAlignment, 0) {}
        RangeAllocator ranges;
        std::uint64_t ready_bytes = 0;  // faulted in
        wire::SegmentId id = 0;         // 0: not mounted
        std::uint32_t incarnation = 0;  // rises with every expel
        std::uint64_t receiving_bytes = 0;
        std::uint64_t draining_bytes = 0;
        // Sealed replicas of this incarnation: those at or below settled_id as a running count and checksum,
        // those above it by id, so that a report costs what changed and not what is held.
        wire::ReplicaId settled_id = 0;
        std::uint64_t settled_count = 0;
        std::uint64_t settled_checksum = 0;
        std::set<wire::ReplicaId> unsettled;
    };
    // Many small tables: growing one moves few entries, so that no reader waits for a rehash of a million.
    static constexpr std::size_t kShards = kInventoryParts;
    using Shard = std::unordered_map<wire::ReplicaId, Entry>;

    Shard& shard_of(wire::ReplicaId replica);
    Entry* find(wire::ReplicaId replica);
    std::optional<SegmentIndex> segment_by_id(wire::SegmentId id) const;
    bool awaits_mount() const;
    bool is_current(const Entry& entry) const;
    bool has_ended(wire::ReplicaId replica) const;
    Granted refuse(wire::Status status);
    std::optional<Range> allocate(Segment& segment, std::uint64_t size);
    void remember_retired(wire::ReplicaId replica);
    void count_sealed(Segment& segment, wire::ReplicaId replica);
    void discount_sealed(Segment& segment, wire::ReplicaId replica);
    void settle(Segment& segment, wire::ReplicaId settled_id);
    // Ends a replica; true when its range is free by now (the entry is gone then).
    bool end(Entry& entry);
    void enter(Entry& entry, State state);
    void leave(const Entry& entry);
    void release(Entry& entry, bool report);
    void check_entry(const Entry& entry) const;
    void check_segment(SegmentIndex index) const;

    DirectoryOptions options_;
    std::uint64_t epoch_ = 0;
    bool fenced_ = false;
    std::uint64_t now_ms_ = 0;
    std::deque<Segment> segments_;
    std::array<Shard, kShards> shards_;
    std::size_t sweep_shard_ = kShards;  // the next one to sweep; kShards: none
    std::unordered_set<wire::ReplicaId> retired_;
    std::deque<wire::ReplicaId> retired_order_;
    wire::ReplicaId ended_floor_ = 0;  // ids at or below it that are not held count as ended
    std::deque<wire::ReplicaId> freed_;
    Counts counts_;
};

}  // namespace mooncake::node
