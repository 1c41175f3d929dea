// RangeAllocator::check_invariants(), for tests and simulations: slow, and allowed to look everywhere.

#include <bit>
#include <stdexcept>
#include <string>

#include "node/core/range_allocator.h"

namespace mooncake::node {
namespace {

void require(bool holds, const char* rule, uint64_t where) {
    if (!holds)
        throw std::logic_error(std::string("range allocator: ") + rule + ", at " + std::to_string(where));
}

}  // namespace

void RangeAllocator::check_invariants() const {
    check_segment();
    check_bins();
}

/// From right to left: ranges lie side by side from 0 to the ready mark, no two free ones touch, and the
/// counts agree.
void RangeAllocator::check_segment() const {
    uint64_t end = ready_units_;
    uint64_t used = 0;
    uint64_t in_use = 0;
    uint64_t free = 0;
    uint32_t right = kNone;
    for (uint32_t at = rightmost_; at != kNone; right = at, at = record_at(at).left) {
        require(at < records_taken_, "a link leads nowhere", at);
        const Record& record = record_at(at);
        require(record.units > 0 && record.start + record.units == end, "ranges leave a gap or overlap", end);
        require(record.right == right, "neighbours disagree", record.start);
        require(record.newer != kSpare, "a spare record lies in the segment", record.start);
        if (is_free(record)) {
            ++free;
            require(right == kNone || !is_free(record_at(right)), "free neighbours are not coalesced", end);
        } else {
            ++in_use;
            used += record.units;
        }
        end = record.start;
    }
    require(end == 0, "the segment's start is covered by no range", end);
    require(used == used_units_ && used <= ready_units_, "used units disagree", used);
    require(in_use == range_count_, "ranges in use disagree", in_use);
    require(free == free_count_, "free ranges disagree", free);
    uint64_t spare = 0;
    for (uint32_t at = spare_; at != kNone; at = record_at(at).right) {
        require(record_at(at).newer == kSpare && spare <= records_taken_, "the spare list is broken", at);
        ++spare;
    }
    require(in_use + free + spare == records_taken_, "records have leaked", spare);
}

/// Every free range is in the list of its bin and in no other, and bounds and bitmaps agree with the lists.
void RangeAllocator::check_bins() const {
    uint64_t listed = 0;
    for (uint32_t number = 0; number < bins_.size(); ++number) {
        const Bin& bin = bins_[number];
        uint64_t largest = 0;
        uint32_t newer = kNone;
        for (uint32_t at = bin.head; at != kNone; newer = at, at = record_at(at).older) {
            const Record& record = record_at(at);
            require(is_free(record) && record.newer == newer, "a bin's list is broken", number);
            require(bin_of(record.units) == number, "a free range is in the wrong bin", record.start);
            require(++listed <= free_count_, "the bins hold more than the free ranges", number);
            largest = largest < record.units ? record.units : largest;
        }
        require(largest <= bin.bound, "a range is above its bin's bound", number);
        require(!bin.bound_is_exact || largest == bin.bound, "an exact bound is not", number);
        const bool marked = ((octave_bins_[number / kBinsPerOctave] >> (number % kBinsPerOctave)) & 1) != 0;
        require(marked == (bin.head != kNone), "the bitmap of bins disagrees", number);
    }
    require(listed == free_count_, "a free range is in no bin", listed);
    for (uint32_t octave = 0; octave < kOctaves; ++octave) {
        const bool marked = ((octaves_ >> octave) & 1u) != 0;
        require(marked == (octave_bins_[octave] != 0), "the bitmap of octaves disagrees", octave);
    }
}

}  // namespace mooncake::node
