// The segments of the pool and what is charged on each. Owns capacity accounting and the eviction orders;
// knows neither keys nor puts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "metadata/eviction_order.h"
#include "metadata/flat_map.h"
#include "metadata/object.h"
#include "metadata/replica_status.h"
#include "wire/control.h"
#include "wire/lane.h"

namespace mooncake::metadata {

inline constexpr std::uint64_t kSegmentBytesMax = std::uint64_t{1} << 50;

struct Segment {
    static constexpr std::size_t kEndedMax = 4096;

    enum class State : std::uint8_t {
        kFree,      // the slot names no segment
        kMounted,   // in the pool
        kExpelled,  // out of the pool; records may still name the slot, and are met by the sweep or by a read
    };
    State state = State::kFree;
    wire::SegmentId id = 0;
    wire::SessionId owner = 0;
    // False: its node holds values of an earlier reign that it has not all told. Nothing is placed here yet.
    bool is_reported = true;
    // Its node is about to leave: nothing is placed here any more, and what is hot is moved away.
    bool is_draining = false;
    bool is_in_totals = false;      // it is in mounted_dram(), and its bytes in dram_totals()
    std::uint64_t handed_over = 0;  // replicas that were

    wire::Tier tier = wire::Tier::kDram;
    std::uint64_t capacity_bytes = 0;
    wire::Uuid incarnation{};
    std::string name;
    std::string host_id;
    std::vector<std::string> endpoints;

    // Of the replicas here, by ReplicaStatus (kNone stays zero).
    std::array<std::uint64_t, kReplicaStatuses> bytes{};
    std::array<std::uint64_t, kReplicaStatuses> counts{};
    std::uint64_t hard_pinned_bytes = 0;  // of live replicas
    std::uint64_t soft_pinned_bytes = 0;
    // Room that retirements under way will give to puts that wait for it.
    std::uint64_t promised_bytes = 0;

    // A node found no range although there was room: free bytes that count as used until no_range_until_ms,
    // or until a value of no_range_bytes found one. So the next such put goes elsewhere, or evicts more.
    std::uint64_t unusable_bytes = 0;
    std::uint64_t no_range_bytes = 0;
    std::uint64_t no_range_until_ms = 0;
    std::uint32_t no_ranges = 0;  // in a row

    std::unique_ptr<EvictionOrder> order;       // of live objects without a pin
    std::unique_ptr<EvictionOrder> soft_order;  // of those with a soft pin
    wire::SegmentReport report;                 // the node's last

    // The reign of which it came with an inventory; 0: it came with none.
    std::uint64_t inventory_epoch = 0;
    // Replicas here of values that ended for good (not by eviction), with when, until they are freed: what a
    // master after this one must not take in. Beyond kEndedMax they are only counted, and everything at or
    // below ended_floor is given up with them.
    FlatMap<std::uint64_t> ended;
    std::size_t ended_count = 0;
    wire::ReplicaId ended_floor = 0;

    // What its node holds, to be compared with what it counts itself: replicas that are live, or were when
    // they were retired and it has not confirmed. Those at or below `mark`, and those above.
    wire::ReplicaId mark = 0;
    wire::InventoryTotals held;
    wire::InventoryTotals held_later;
    // Retired, not confirmed, never live: it may hold them or not.
    std::uint64_t unsure_count = 0;
    // It was told to end these, and nothing else here knows of them: until it confirms.
    FlatMap<bool> orphans;
    // Its own count was another one; what it holds is to be compared, or is being.
    bool differs = false;

    wire::InventoryTotals& held_with(wire::ReplicaId replica) { return replica <= mark ? held : held_later; }

    bool is_mounted() const { return state == State::kMounted; }
    std::uint64_t of(ReplicaStatus status) const { return bytes[static_cast<std::size_t>(status)]; }
    // What values occupy, and what is on its way out.
    std::uint64_t used_bytes() const { return begun_bytes() + of(ReplicaStatus::kLive); }
    // Placed and not yet committed: never evicted.
    std::uint64_t begun_bytes() const { return of(ReplicaStatus::kUnfinished) + of(ReplicaStatus::kCopying); }
    std::uint64_t retiring_bytes() const { return of(ReplicaStatus::kRetiring); }
    std::uint64_t charged_bytes() const { return used_bytes() + retiring_bytes(); }
    std::uint64_t replica_count() const { return counts[1] + counts[2] + counts[3] + counts[4]; }

    // Room now, beside what free bytes owe to puts that waited first.
    bool fits(std::uint64_t wanted) const {
        const std::uint64_t owed = promised_bytes > retiring_bytes() ? promised_bytes - retiring_bytes() : 0;
        return charged_bytes() + owed + unusable_bytes + wanted <= capacity_bytes;
    }
    // Room once all retirements under way are through.
    bool will_fit(std::uint64_t wanted) const {
        return used_bytes() + promised_bytes + unusable_bytes + wanted <= capacity_bytes;
    }
    // Room if everything evictable went too.
    bool could_fit(std::uint64_t wanted, bool evict_soft_pinned) const {
        return staying_bytes(evict_soft_pinned) + promised_bytes + wanted <= capacity_bytes;
    }
    std::uint64_t staying_bytes(bool evict_soft_pinned) const {
        return begun_bytes() + hard_pinned_bytes + (evict_soft_pinned ? 0 : soft_pinned_bytes);
    }
    void range_found() {
        unusable_bytes = no_range_bytes = no_range_until_ms = 0;
        no_ranges = 0;
    }
    double free_ratio() const {
        return 1.0 - static_cast<double>(charged_bytes()) / static_cast<double>(capacity_bytes);
    }
    wire::SegmentDescription description() const;
};

class Segments {
  public:
    Segment& at(SegmentIndex index) { return slots_[index]; }
    const Segment& at(SegmentIndex index) const { return slots_[index]; }
    std::size_t slot_count() const { return slots_.size(); }

    // Indices of what is in the pool; of the DRAM tier what new values may be placed on.
    const std::vector<SegmentIndex>& mounted() const { return mounted_; }
    const std::vector<SegmentIndex>& mounted_dram() const { return mounted_dram_; }
    std::size_t unreported_count() const { return unreported_count_; }
    // The mounted segment with that id or name, or nullptr.
    const SegmentIndex* find(wire::SegmentId id) const { return by_id_.find(id); }
    const SegmentIndex* find_name(std::string_view name) const;

    SegmentIndex mount(wire::SegmentId id, wire::SessionId owner, const wire::SegmentDescription& description,
                       bool is_reported);
    // Its node has told all that it holds.
    void reported(SegmentIndex index);
    // Nothing is placed there from now on.
    void drain(SegmentIndex index);
    std::size_t draining_count() const { return draining_count_; }
    // Leaves the pool; the slot waits for free_empty_slots.
    void expel(SegmentIndex index);
    std::size_t expelled_count() const { return expelled_count_; }
    // Replicas of that status on segments that left.
    std::uint64_t expelled_replicas(ReplicaStatus status) const;
    // Frees the slots of expelled segments that no replica names any more.
    void free_empty_slots();

    // A replica of so many bytes goes from one status to another; kNone: it is not there.
    void change(SegmentIndex index, ReplicaStatus from, ReplicaStatus to, std::uint64_t bytes);

    // Sums over mounted_dram(), kept as replicas change: every put asks for them.
    struct Totals {
        std::uint64_t capacity_bytes = 0;
        std::uint64_t used_bytes = 0;
        std::uint64_t retiring_bytes = 0;
        bool operator==(const Totals&) const = default;
    };
    const Totals& dram_totals() const { return dram_totals_; }
    Totals summed_dram() const;  // the same, added up
    std::uint64_t largest_dram_bytes() const { return largest_dram_bytes_; }

  private:
    void list_mounted();

    std::vector<Segment> slots_;
    std::vector<SegmentIndex> free_;
    std::vector<SegmentIndex> mounted_;
    std::vector<SegmentIndex> mounted_dram_;
    FlatMap<SegmentIndex> by_id_;
    std::size_t expelled_count_ = 0;
    std::size_t unreported_count_ = 0;
    std::size_t draining_count_ = 0;
    std::uint64_t largest_dram_bytes_ = 0;
    Totals dram_totals_;
};

}  // namespace mooncake::metadata
