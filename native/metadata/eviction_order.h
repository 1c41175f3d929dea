// Which object of one segment goes next: least recently used first, those that readers asked to keep aside.
// The policy behind eviction: another one (a visited bit, frequency) would replace this class only.
//
// Recency is a stamp in the object's record, written on every access; this structure is not told. An entry
// lies in the bucket of the stamp that its object had when it was placed; when its bucket is the oldest,
// those accessed since move to the bucket of their present stamp, the rest are sorted exactly. So an access
// costs one store in a line that is in the cache anyway, a victim O(1) amortised, an entry 12 bytes. An
// object that went leaves its entry behind until it is met (its put_id no longer matches) or compact() comes
// by.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "metadata/flat_map.h"
#include "metadata/key_table.h"

namespace mooncake::metadata {

class EvictionOrder {
  public:
    // soft: holds the soft-pinned objects; one whose pin ended is not its any more.
    explicit EvictionOrder(bool soft) : soft_(soft) {}

    // A value became visible (or lost its pin); `clock` is the newest stamp given out.
    void inserted(Ref ref, const Object& object, std::uint64_t clock);
    // It is gone, or went to the other order.
    void removed() { --live_count_; }
    // It stays visible and is no victim here for now (or its replica went elsewhere); inserted() ends that.
    void withdrawn(const Object& object) {
        --live_count_;
        withdrawn_.insert(object.put_id, true);
    }

    struct Victim {
        Ref ref = 0;
        std::uint64_t rank = 0;  // lower goes first: the stamp, or for kept ones the end of lease or hold
    };
    // The least recently used object that nobody asked to keep. Every entry examined takes one from
    // `budget`; nullopt with a budget left means that there is none.
    std::optional<Victim> oldest(const KeyTable& table, std::uint64_t now_ms, std::uint64_t clock,
                                 std::size_t& budget);
    // Once oldest() found none: the kept object whose lease or hold ends first.
    std::optional<Victim> oldest_kept(const KeyTable& table, std::size_t& budget);

    // A reader gave back the last lease: one that was set aside for it may go again.
    void released(Ref ref, const Object& object);

    // Drops up to `budget` entries' worth of what left, if more left than is here; time passes for the
    // buckets.
    void compact(const KeyTable& table, std::uint64_t clock, std::size_t& budget);

    std::size_t live_count() const { return live_count_; }
    std::size_t bytes() const { return entry_count_ * sizeof(Entry); }
    // Live objects that an entry of this order names, for check_invariants.
    std::vector<Ref> named(const KeyTable& table) const;

  private:
    struct Entry {
        Ref ref;
        std::uint32_t put_id_low;
        std::uint32_t put_id_high;

        wire::PutId put_id() const { return std::uint64_t{put_id_high} << 32 | put_id_low; }
    };
    static_assert(sizeof(Entry) == 12);
    struct Ranked {
        std::uint64_t rank;
        Entry entry;

        bool operator<(const Ranked& other) const { return rank > other.rank; }  // the heap's top is lowest
    };
    struct Bucket {
        std::uint64_t first_stamp;  // up to the next bucket's
        std::vector<Entry> entries;
    };

    static Entry entry_of(Ref ref, const Object& object) {
        return {ref, static_cast<std::uint32_t>(object.put_id),
                static_cast<std::uint32_t>(object.put_id >> 32)};
    }
    // The object an entry names, or nullptr when that one is gone.
    const Object* live(const KeyTable& table, const Entry& entry) const;
    // An entry leaves the order for good.
    void drop(const Entry& entry) {
        --entry_count_;
        withdrawn_.erase(entry.put_id());
    }
    void place(const Entry& entry, std::uint64_t stamp);
    void open_bucket_if_due(std::uint64_t clock);
    void coarsen();
    bool refill(const KeyTable& table, std::uint64_t clock, std::size_t& budget);
    bool begin_slice(std::uint64_t clock);
    std::optional<Victim> oldest_released(const KeyTable& table, std::uint64_t now_ms, std::size_t& budget);
    void return_unkept(const KeyTable& table, std::uint64_t now_ms, std::size_t& budget);
    void push(std::vector<Ranked>& heap, const Ranked& ranked);
    Entry pop(std::vector<Ranked>& heap);

    bool soft_;
    FlatMap<bool> withdrawn_;        // by put_id: objects whose entry stays behind without a claim
    std::deque<Bucket> buckets_;     // ascending; all stamps below the first bucket's are in ready_
    std::vector<Ranked> ready_;      // heap by stamp: those next in line
    std::uint64_t ready_until_ = 0;  // stamps below it belong to ready_
    std::vector<Ranked> kept_;       // heap by end of lease or hold: met, but somebody wants them
    std::vector<Ranked> released_;   // heap by stamp: hints to entries of kept_ that nobody wants any more
    bool released_all_ = false;      // the hints were too many: look at all of kept_
    std::size_t slice_taken_ = 0;    // of the first bucket's entries: these moved on already,
    std::size_t slice_end_ = 0;      // and these do before anything of ready_ goes
    std::size_t live_count_ = 0;
    std::size_t entry_count_ = 0;
    std::size_t compact_position_ = 0;
};

}  // namespace mooncake::metadata
