#include "node/core/range_allocator.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <stdexcept>
#include <string>

namespace mooncake::node {

RangeAllocator::RangeAllocator(uint64_t capacity, uint64_t alignment, uint64_t ready_bytes) {
    if (!std::has_single_bit(alignment)) {
        throw std::invalid_argument("alignment is " + std::to_string(alignment) +
                                    "; it must be a power of two");
    }
    unit_shift_ = static_cast<uint32_t>(std::countr_zero(alignment));
    capacity_units_ = capacity >> unit_shift_;
    bins_.fill(Bin{.head = kNone, .bound_is_exact = true, .bound = 0});
    set_ready(ready_bytes);
}

std::optional<Range> RangeAllocator::allocate(uint64_t bytes) {
    const uint64_t units = units_of(bytes);
    const uint32_t index = find_free(units);
    if (index == kNone) return std::nullopt;
    unlink(index);
    split(index, units);
    Record& record = record_at(index);
    record.newer = record.older = kInUse;
    used_units_ += record.units;
    ++range_count_;
    return Range{.offset = record.start << unit_shift_, .record = index};
}

void RangeAllocator::free(Range range) {
    assert(holds(range) && "freed a range that is not in use");
    uint32_t index = range.record;
    used_units_ -= record_at(index).units;
    --range_count_;
    const uint32_t right = record_at(index).right;
    if (right != kNone && is_free(record_at(right))) {
        unlink(right);
        absorb_right(index);
    }
    const uint32_t left = record_at(index).left;
    if (left != kNone && is_free(record_at(left))) {
        unlink(left);
        absorb_right(left);
        index = left;
    }
    link(index);
}

void RangeAllocator::set_ready(uint64_t ready_bytes) {
    const uint64_t ready = std::min(ready_bytes >> unit_shift_, capacity_units_);
    if (ready <= ready_units_) return;
    const uint64_t grown = ready - ready_units_;
    if (rightmost_ != kNone && is_free(record_at(rightmost_))) {
        unlink(rightmost_);
        record_at(rightmost_).units += grown;
    } else {
        const uint32_t index = take_record();
        assert(index != kNone && "more ranges than records");
        record_at(index) = Record{.start = ready_units_,
                                  .units = grown,
                                  .left = rightmost_,
                                  .right = kNone,
                                  .newer = kInUse,
                                  .older = kInUse};
        if (rightmost_ != kNone) record_at(rightmost_).right = index;
        rightmost_ = index;
    }
    ready_units_ = ready;
    link(rightmost_);
}

uint64_t RangeAllocator::charged_bytes(uint64_t bytes) const {
    const uint64_t units = units_of(bytes);
    const uint64_t most = std::numeric_limits<uint64_t>::max();
    return units > most >> unit_shift_ ? most : units << unit_shift_;
}

bool RangeAllocator::holds(Range range) const {
    if (range.record >= records_taken_) return false;
    const Record& record = record_at(range.record);
    return record.newer == kInUse && record.start << unit_shift_ == range.offset;
}

uint64_t RangeAllocator::size_of(Range range) const {
    assert(holds(range) && "asked for the size of a range that is not in use");
    return record_at(range.record).units << unit_shift_;
}

uint64_t RangeAllocator::largest_free() const {
    if (octaves_ == 0) return 0;
    const auto octave = static_cast<uint32_t>(std::bit_width(octaves_) - 1);
    const auto top = static_cast<uint32_t>(std::bit_width(octave_bins_[octave]) - 1);
    Bin& bin = bins_[octave * kBinsPerOctave + top];
    if (!bin.bound_is_exact) {
        uint64_t largest = 0;
        for (uint32_t at = bin.head; at != kNone && largest < bin.bound; at = record_at(at).older) {
            largest = std::max(largest, record_at(at).units);
        }
        bin.bound = largest;
        bin.bound_is_exact = true;
    }
    return bin.bound << unit_shift_;
}

uint64_t RangeAllocator::record_bytes() const { return chunks_.size() * sizeof(Chunk); }

// ---- Searching

uint64_t RangeAllocator::units_of(uint64_t bytes) const {
    if (bytes == 0) return 1;
    return ((bytes - 1) >> unit_shift_) + 1;
}

uint32_t RangeAllocator::bin_of(uint64_t units) {
    if (units < kBinsPerOctave) return static_cast<uint32_t>(units);
    const auto power = static_cast<uint32_t>(std::bit_width(units) - 1);
    const auto eighth = static_cast<uint32_t>(units >> (power - 3)) % kBinsPerOctave;
    return (power - 2) * kBinsPerOctave + eighth;
}

uint32_t RangeAllocator::find_free(uint64_t units) {
    const uint32_t own = bin_of(units);
    Bin& bin = bins_[own];
    if (units <= bin.bound) {
        uint32_t at = bin.head;
        for (uint32_t looks = 0; at != kNone && looks < kHeadsMax; ++looks, at = record_at(at).older) {
            if (record_at(at).units >= units) return at;
        }
    }
    const uint32_t above = first_above(own);
    if (above != kNone) return bins_[above].head;
    return units <= bin.bound ? scan_bin(bin, units) : kNone;
}

/// The first non-empty bin after this one, or kNone.
uint32_t RangeAllocator::first_above(uint32_t bin) const {
    const uint32_t octave = bin / kBinsPerOctave;
    const uint32_t rest = octave_bins_[octave] & (~uint32_t{1} << (bin % kBinsPerOctave));
    if (rest != 0) return octave * kBinsPerOctave + static_cast<uint32_t>(std::countr_zero(rest));
    const uint64_t octaves = octaves_ & (~uint64_t{1} << octave);
    if (octaves == 0) return kNone;
    const auto next = static_cast<uint32_t>(std::countr_zero(octaves));
    return next * kBinsPerOctave + static_cast<uint32_t>(std::countr_zero(uint32_t{octave_bins_[next]}));
}

/// Any entry of the bin that fits; if there is none, the bin's bound is now exact and below `units`.
uint32_t RangeAllocator::scan_bin(Bin& bin, uint64_t units) {
    uint64_t largest = 0;
    for (uint32_t at = bin.head; at != kNone; at = record_at(at).older) {
        if (record_at(at).units >= units) return at;
        largest = std::max(largest, record_at(at).units);
    }
    bin.bound = largest;
    bin.bound_is_exact = true;
    return kNone;
}

// ---- Lists and neighbours

void RangeAllocator::link(uint32_t index) {
    Record& record = record_at(index);
    const uint32_t number = bin_of(record.units);
    Bin& bin = bins_[number];
    record.newer = kNone;
    record.older = bin.head;
    if (bin.head != kNone) record_at(bin.head).newer = index;
    bin.head = index;
    if (record.units >= bin.bound) {
        bin.bound = record.units;
        bin.bound_is_exact = true;
    }
    ++free_count_;
    octaves_ |= uint64_t{1} << (number / kBinsPerOctave);
    octave_bins_[number / kBinsPerOctave] |= static_cast<uint8_t>(1u << (number % kBinsPerOctave));
}

/// Takes a free range off its bin's list. The caller marks it as in use or links it again.
void RangeAllocator::unlink(uint32_t index) {
    const Record& record = record_at(index);
    const uint32_t number = bin_of(record.units);
    Bin& bin = bins_[number];
    if (record.older != kNone) record_at(record.older).newer = record.newer;
    if (record.newer != kNone) {
        record_at(record.newer).older = record.older;
    } else {
        bin.head = record.older;
    }
    if (record.units == bin.bound) bin.bound_is_exact = false;
    --free_count_;
    if (bin.head != kNone) return;
    bin.bound = 0;
    bin.bound_is_exact = true;
    uint8_t& bins = octave_bins_[number / kBinsPerOctave];
    bins &= static_cast<uint8_t>(~(1u << (number % kBinsPerOctave)));
    if (bins == 0) octaves_ &= ~(uint64_t{1} << (number / kBinsPerOctave));
}

/// Cuts an unlinked range to `units`; what is left over becomes a free range to its right. Out of records,
/// the range keeps its whole size: that wastes a part of it, which size_of() and used_bytes() tell, and comes
/// back when freed.
void RangeAllocator::split(uint32_t index, uint64_t units) {
    if (record_at(index).units == units) return;
    const uint32_t rest = take_record();
    if (rest == kNone) return;
    Record& record = record_at(index);
    record_at(rest) = Record{.start = record.start + units,
                             .units = record.units - units,
                             .left = index,
                             .right = record.right,
                             .newer = kInUse,
                             .older = kInUse};
    if (record.right != kNone) {
        record_at(record.right).left = rest;
    } else {
        rightmost_ = rest;
    }
    record.units = units;
    record.right = rest;
    link(rest);
}

/// Merges the unlinked right neighbour into this unlinked range.
void RangeAllocator::absorb_right(uint32_t index) {
    Record& record = record_at(index);
    const uint32_t gone = record.right;
    const Record& absorbed = record_at(gone);
    record.units += absorbed.units;
    record.right = absorbed.right;
    if (record.right != kNone) {
        record_at(record.right).left = index;
    } else {
        rightmost_ = index;
    }
    drop_record(gone);
}

// ---- Records

uint32_t RangeAllocator::take_record() {
    if (spare_ != kNone) {
        const uint32_t index = spare_;
        spare_ = record_at(index).right;
        return index;
    }
    if (records_taken_ == kRecordsMax) return kNone;
    if (records_taken_ == chunks_.size() * kChunkRecords) chunks_.push_back(std::make_unique<Chunk>());
    return records_taken_++;
}

void RangeAllocator::drop_record(uint32_t index) {
    Record& record = record_at(index);
    record.newer = record.older = kSpare;
    record.right = spare_;
    spare_ = index;
}

}  // namespace mooncake::node
