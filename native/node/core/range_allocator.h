// The ranges of one segment: which bytes are in use and which are free.
//
// Owns offsets and sizes, nothing else. Must not know what is stored in a range, who reads it, or where the
// segment lies in memory; it never touches the segment itself. Not synchronised: the node's directory calls
// it under its lock.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace mooncake::node {

/// A range in use: where it starts, and its record in the allocator, so that freeing needs no search.
struct Range {
    uint64_t offset = 0;
    uint32_t record = 0;

    friend bool operator==(const Range&, const Range&) = default;
};

/// Hands out ranges of [0, ready_bytes) in O(1): segregated lists of free ranges, eight bins an octave of
/// size, a bitmap of octaves and one of bins for each octave, neighbours coalesced at once.
///
/// A request is refused only if no free range can hold it. It looks, in this order, at
///   1. the newest kHeadsMax entries of the bin that its exact size belongs to. A search that rounds the
///      size up to the next bin never finds a hole of exactly the requested size: with uniform blocks, the
///      common case for a KV cache, it cuts up all that is larger and wastes a third of the segment;
///   2. the next non-empty bin above, where every entry fits;
///   3. the rest of its own bin. This is a list scan, but only in a segment that has nothing larger, and a
///      failed one leaves the bin's exact bound, so that the same request is refused in O(1) until a larger
///      range of this bin is freed and taken again. Measured at its worst, two sizes of one bin mixed in a
///      segment that is too full for both: 50 us a request among 250,000 ranges.
///
/// Costs kRecordBytes a range, free or in use. Records live in chunks that never move.
class RangeAllocator {
  public:
    /// Manages capacity bytes, of which the first ready_bytes may be handed out; both are rounded down to
    /// alignment. alignment: a power of two; every offset and every size is a multiple of it. Throws
    /// std::invalid_argument.
    RangeAllocator(uint64_t capacity, uint64_t alignment, uint64_t ready_bytes);
    explicit RangeAllocator(uint64_t capacity, uint64_t alignment = 64)
        : RangeAllocator(capacity, alignment, capacity) {}
    RangeAllocator(const RangeAllocator&) = delete;
    RangeAllocator& operator=(const RangeAllocator&) = delete;

    /// A range of at least `bytes`, rounded up to the alignment (0 costs one unit), or nothing if no free one
    /// fits.
    [[nodiscard]] std::optional<Range> allocate(uint64_t bytes);

    /// Returns a range and coalesces it with its free neighbours. Freeing what is not in use is a bug: it
    /// asserts.
    void free(Range range);

    /// Raises the mark below which ranges are handed out; a lower value changes nothing, more than the
    /// capacity means all. Memory is faulted in the background and mounted at once, so allocation follows the
    /// part that is ready; who would rather pay for a page fault than refuse raises the mark and tries again.
    void set_ready(uint64_t ready_bytes);

    /// What allocate(bytes) charges.
    [[nodiscard]] uint64_t charged_bytes(uint64_t bytes) const;
    /// Whether this is a range in use: allocated here and not freed since.
    [[nodiscard]] bool holds(Range range) const;
    /// The size of a range in use, as charged.
    [[nodiscard]] uint64_t size_of(Range range) const;

    [[nodiscard]] uint64_t alignment() const { return uint64_t{1} << unit_shift_; }
    [[nodiscard]] uint64_t capacity() const { return capacity_units_ << unit_shift_; }
    [[nodiscard]] uint64_t ready_bytes() const { return ready_units_ << unit_shift_; }
    [[nodiscard]] uint64_t used_bytes() const { return used_units_ << unit_shift_; }
    /// Free bytes that can be handed out now, below the ready mark.
    [[nodiscard]] uint64_t free_bytes() const { return (ready_units_ - used_units_) << unit_shift_; }
    /// The largest request that would succeed now, exactly. Scans the top bin if its largest has gone since
    /// last asked.
    [[nodiscard]] uint64_t largest_free() const;
    /// Ranges in use.
    [[nodiscard]] uint64_t range_count() const { return range_count_; }
    /// Memory spent on records.
    [[nodiscard]] uint64_t record_bytes() const;

    /// Walks everything; throws std::logic_error naming what is wrong: a gap or an overlap, free neighbours
    /// that were not coalesced, a range in the wrong bin or in none, a bitmap or a count that disagrees.
    void check_invariants() const;

    static constexpr uint32_t kRecordBytes = 32;
    static constexpr uint32_t kHeadsMax = 8;

  private:
    // Sizes and offsets are in units of the alignment. One record for each range, in use or free.
    struct Record {
        uint64_t start;
        uint64_t units;
        uint32_t left;   // neighbour in the segment, or kNone
        uint32_t right;  // the same; links spare records
        uint32_t newer;  // free: neighbour in the bin's list, kNone at its head. Else kInUse or kSpare
        uint32_t older;  // free: the same, kNone at its tail
    };
    static_assert(sizeof(Record) == kRecordBytes);

    struct Bin {
        uint32_t head;
        bool bound_is_exact;
        uint64_t bound;  // no range of this bin has more units
    };

    static constexpr uint32_t kNone = 0xFFFF'FFFFu;
    static constexpr uint32_t kInUse = 0xFFFF'FFFEu;
    static constexpr uint32_t kSpare = 0xFFFF'FFFDu;
    static constexpr uint32_t kRecordsMax = kSpare;
    static constexpr uint32_t kChunkRecords = 2048;  // 64 KiB: small stores stay small
    static constexpr uint32_t kBinsPerOctave = 8;
    static constexpr uint32_t kOctaves =
        62;  // sizes below 8 units are one octave of exact bins, then 2^3 to 2^63

    using Chunk = std::array<Record, kChunkRecords>;

    static uint32_t bin_of(uint64_t units);
    static bool is_free(const Record& record) { return record.newer < kSpare || record.newer == kNone; }

    Record& record_at(uint32_t index) { return (*chunks_[index / kChunkRecords])[index % kChunkRecords]; }
    const Record& record_at(uint32_t index) const {
        return (*chunks_[index / kChunkRecords])[index % kChunkRecords];
    }
    uint64_t units_of(uint64_t bytes) const;

    uint32_t find_free(uint64_t units);
    uint32_t first_above(uint32_t bin) const;
    uint32_t scan_bin(Bin& bin, uint64_t units);

    void link(uint32_t index);
    void unlink(uint32_t index);
    void split(uint32_t index, uint64_t units);
    void absorb_right(uint32_t index);

    uint32_t take_record();
    void drop_record(uint32_t index);

    void check_segment() const;
    void check_bins() const;

    uint32_t unit_shift_;
    uint64_t capacity_units_;
    uint64_t ready_units_ = 0;
    uint64_t used_units_ = 0;
    uint64_t range_count_ = 0;
    uint64_t free_count_ = 0;
    uint32_t rightmost_ = kNone;

    std::vector<std::unique_ptr<Chunk>> chunks_;
    uint32_t records_taken_ = 0;  // of the chunks, from the front; beyond lie records never used
    uint32_t spare_ = kNone;

    uint64_t octaves_ = 0;  // bit o: octave_bins_[o] != 0
    std::array<uint8_t, kOctaves> octave_bins_{};
    // largest_free() makes a stale bound exact.
    mutable std::array<Bin, size_t{kOctaves} * kBinsPerOctave> bins_;
};

}  // namespace mooncake::node
