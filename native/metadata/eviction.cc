// Who goes when there is too much: passes in the order of wishes, victims in the order of the policy's ranks.
#include <algorithm>

#include "metadata/machine.h"

namespace mooncake::metadata {

void Machine::want(std::string_view key, std::uint32_t tenant, Ref ref) {
    accesses_.push_back({table_.hash(tenant, key), ref != 0, 0});
    accessed_.push_back(ref);
}

// Keys `first` and up of a request for `total`.
void Machine::tell_wanted(std::size_t first, std::size_t total) {
    if (accesses_.empty()) return;
    policy_->asked(accesses_, first, total, pool_size());
    for (std::size_t i = 0; i < accessed_.size(); ++i) {
        if (accessed_[i] == 0) continue;
        // An earlier key of the step may have ended this one's record; then it is of no value, or another's.
        Object& object = table_.object(accessed_[i]);
        if (object.is_visible()) raise(object, accesses_[i].rank);
    }
}

// The pool is full at the watermark, with keys like those that are there.
void Machine::measure_pool() {
    const auto totals = segments_.dram_totals();
    keys_that_fit_ = kUnmeasuredRoom;
    if (totals.used_bytes == 0 || visible_count_ == 0) return;
    const double full = options_.eviction_high_watermark_ratio * static_cast<double>(totals.capacity_bytes);
    const double keys = static_cast<double>(visible_count_ + puts_.size());
    keys_that_fit_ = std::min(static_cast<double>(options_.max_keys),
                              keys * full / static_cast<double>(totals.used_bytes));
}

std::optional<EvictionOrder::Victim> Machine::victim_on(SegmentIndex index, Pass pass, std::size_t& budget) {
    Segment& segment = segments_.at(index);
    switch (pass) {
        case Pass::kUnwanted:
            return segment.order->oldest(table_, now_ms_, policy_->clock(), budget);
        case Pass::kKept:
            return segment.order->oldest_kept(table_, budget);
        case Pass::kSoftPinned:
            return segment.soft_order->oldest(table_, now_ms_, policy_->clock(), budget);
        case Pass::kSoftPinnedKept:
            return segment.soft_order->oldest_kept(table_, budget);
    }
    return std::nullopt;
}

std::vector<Machine::Candidate> Machine::victims(std::span<const SegmentIndex> segments, Pass pass,
                                                 std::size_t& budget) {
    std::vector<Candidate> heap;
    for (const auto index : segments) {
        if (const auto victim = victim_on(index, pass, budget)) heap.push_back({*victim, index});
    }
    std::make_heap(heap.begin(), heap.end());
    return heap;
}

// The top's victim is gone: its segment gets in line with the next, and so does any segment whose victim went
// with it, having been the same object.
void Machine::advance(std::vector<Candidate>& heap, Pass pass, std::size_t& budget) {
    std::optional<EvictionOrder::Victim> next;
    bool is_stale = true;
    while (!heap.empty() && is_stale) {
        std::pop_heap(heap.begin(), heap.end());
        Candidate top = heap.back();
        heap.pop_back();
        if ((next = victim_on(top.segment, pass, budget))) {
            heap.push_back({*next, top.segment});
            std::push_heap(heap.begin(), heap.end());
        }
        if (heap.empty()) return;
        const Candidate& first = heap.front();
        const auto current = victim_on(first.segment, pass, budget);
        is_stale = !current || current->ref != first.victim.ref || current->rank != first.victim.rank;
    }
}

// Answers the charged bytes that are on their way back.
std::uint64_t Machine::evict(Ref ref, Pass pass, Effects& effects) {
    const Object& object = table_.object(ref);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        const SegmentIndex index = placed(object, i).segment;
        if (segments_.at(index).is_mounted()) bytes += bytes_on(index, object.size);
    }
    ++counters_.evicted_keys;
    counters_.evicted_bytes += bytes;
    if (pass == Pass::kKept || pass == Pass::kSoftPinnedKept) ++counters_.evicted_leased_keys;
    if (pass == Pass::kSoftPinned || pass == Pass::kSoftPinnedKept) ++counters_.evicted_soft_pinned_keys;
    end_value(ref, ReplicaEvent::kEvicted, effects, nullptr);
    return bytes;
}

bool Machine::is_above_watermark() const {
    const auto totals = segments_.dram_totals();
    return static_cast<double>(totals.used_bytes) >
           options_.eviction_high_watermark_ratio * static_cast<double>(totals.capacity_bytes);
}

// A round begins when what is used, without what retires already, is above the high watermark, and frees
// max(eviction_ratio, used - high + eviction_ratio) of the tier; it may take several ticks. What exists holds
// goes after what nobody asked for: somebody who asks for all there is must not keep the tier full. Leases
// are respected: who needs a byte now breaks them in make_room. True: nothing to do, or nothing that may go.
bool Machine::evict_at_watermark(bool may_take_pinned, Effects& effects) {
    if (round_left_bytes_ == 0) {
        if (!is_above_watermark()) return true;
        const auto totals = segments_.dram_totals();
        const double capacity = static_cast<double>(totals.capacity_bytes);
        const double above = static_cast<double>(totals.used_bytes) / capacity -
                             options_.eviction_high_watermark_ratio + options_.eviction_ratio;
        round_left_bytes_ =
            static_cast<std::uint64_t>(std::max(options_.eviction_ratio, above) * capacity) + 1;
        round_freed_bytes_ = 0;
        ++counters_.eviction_rounds;
    }
    std::size_t budget = kExaminedAKey * options_.keys_a_step_max;
    std::size_t victims_left = options_.keys_a_step_max;
    for (const Pass pass : {Pass::kUnwanted, Pass::kKept, Pass::kSoftPinned}) {
        // Soft-pinned ones go only when there is nothing else at all, leased ones included.
        const bool only_pinned = visible_count_ == hard_pinned_count_ + soft_pinned_count_;
        const bool takes_pinned = may_take_pinned && options_.evict_soft_pinned && only_pinned;
        if (pass == Pass::kSoftPinned && !takes_pinned) break;
        auto heap = victims(segments_.mounted_dram(), pass, budget);
        for (; !heap.empty() && budget > 0; advance(heap, pass, budget)) {
            if (victims_left-- == 0) return false;
            if (table_.object(heap.front().victim.ref).is_leased(now_ms_)) break;
            const std::uint64_t bytes = evict(heap.front().victim.ref, pass, effects);
            round_freed_bytes_ += bytes;
            round_left_bytes_ -= std::min(bytes, round_left_bytes_);
            if (round_left_bytes_ == 0) break;
        }
        if (round_left_bytes_ > 0 && budget == 0) return false;
        if (round_left_bytes_ == 0) break;
    }
    round_left_bytes_ = 0;
    if (round_freed_bytes_ > 0) ++counters_.eviction_successes;
    return true;
}

// After a put took space: a tick is too far away for a writer that fills a tier in one. What is soft-pinned
// waits for that, because the puts under way may be what else there is.
void Machine::relieve(Effects& effects) {
    if (is_round_stuck_ || (round_left_bytes_ == 0 && !is_above_watermark())) return;
    is_round_stuck_ = evict_at_watermark(false, effects) && is_above_watermark();
}

}  // namespace mooncake::metadata
