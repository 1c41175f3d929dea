#include "metadata/eviction_order.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace mooncake::metadata {

namespace {

// Entries of a bucket, and how many of the oldest bucket are sorted at once. A bucket that became longer
// (many accesses between two ticks) is taken in slices of this length, exact within each.
constexpr std::size_t kBucketEntriesMax = 4096;
// More buckets than this, and one for each so many entries, are joined where they are small.
constexpr std::size_t kBucketsMin = 256;
constexpr std::size_t kEntriesABucket = 64;

}  // namespace

void EvictionOrder::inserted(Ref ref, const Object& object, std::uint64_t clock) {
    ++live_count_;
    if (withdrawn_.erase(object.put_id)) {
        // Its entry is still here; if it was set aside, it may be unwanted by now.
        released(ref, object);
        return;
    }
    ++entry_count_;
    open_bucket_if_due(clock);
    place(entry_of(ref, object), object.stamp);
}

const Object* EvictionOrder::live(const KeyTable& table, const Entry& entry) const {
    const Object& object = table.object(entry.ref);
    if (object.put_id != entry.put_id() || object.has(kSoftPin) != soft_) return nullptr;
    return withdrawn_.size() > 0 && withdrawn_.find(object.put_id) != nullptr ? nullptr : &object;
}

void EvictionOrder::push(std::vector<Ranked>& heap, const Ranked& ranked) {
    heap.push_back(ranked);
    std::push_heap(heap.begin(), heap.end());
}

EvictionOrder::Entry EvictionOrder::pop(std::vector<Ranked>& heap) {
    std::pop_heap(heap.begin(), heap.end());
    const Entry entry = heap.back().entry;
    heap.pop_back();
    return entry;
}

void EvictionOrder::place(const Entry& entry, std::uint64_t stamp) {
    if (stamp < ready_until_ || buckets_.empty()) {
        push(ready_, {stamp, entry});
        return;
    }
    auto after = std::upper_bound(buckets_.begin(), buckets_.end(), stamp,
                                  [](std::uint64_t value, const Bucket& b) { return value < b.first_stamp; });
    assert(after != buckets_.begin());
    std::prev(after)->entries.push_back(entry);
}

// The last bucket takes all new stamps: close it when it is long, or when as many accesses passed as would
// spread a full turn of all objects over 16 buckets.
void EvictionOrder::open_bucket_if_due(std::uint64_t clock) {
    const std::uint64_t width = std::max<std::uint64_t>(kBucketEntriesMax, live_count_ / 16);
    if (!buckets_.empty() && buckets_.back().entries.size() < kBucketEntriesMax &&
        clock < buckets_.back().first_stamp + width) {
        return;
    }
    const std::uint64_t first = std::max(clock, ready_until_);
    if (buckets_.empty()) ready_until_ = first;
    if (!buckets_.empty() && buckets_.back().first_stamp >= first) return;
    buckets_.push_back({first, {}});
    if (buckets_.size() > kBucketsMin + entry_count_ / kEntriesABucket) coarsen();
}

// Joins neighbours that are short together, the newest aside: a bucket's range may always grow.
void EvictionOrder::coarsen() {
    std::deque<Bucket> joined;
    const std::size_t last = buckets_.size() - 1;
    for (std::size_t i = 0; i <= last; ++i) {
        auto& bucket = buckets_[i];
        // The first may be half taken: it stays. The others join in pairs, an even one with the one before
        // it.
        const bool joins = i % 2 == 0 && i > 1 && i < last &&
                           joined.back().entries.size() + bucket.entries.size() <= kBucketEntriesMax;
        if (joins) {
            auto& entries = joined.back().entries;
            entries.insert(entries.end(), bucket.entries.begin(), bucket.entries.end());
        } else {
            joined.push_back(std::move(bucket));
        }
    }
    buckets_.swap(joined);
    compact_position_ = 0;
}

// Fills ready_ with the oldest bucket's slice. False: the order is empty, or the budget ended first.
bool EvictionOrder::refill(const KeyTable& table, std::uint64_t clock, std::size_t& budget) {
    while (slice_taken_ < slice_end_ || ready_.empty()) {
        if (slice_taken_ == slice_end_ && !begin_slice(clock)) return false;
        while (slice_taken_ < slice_end_) {
            if (budget == 0) return false;
            --budget;
            const Entry entry = buckets_.front().entries[slice_taken_++];
            if (const Object* object = live(table, entry)) {
                place(entry, object->stamp);
            } else {
                drop(entry);
            }
        }
        if (slice_taken_ == buckets_.front().entries.size()) {
            buckets_.pop_front();
            slice_taken_ = slice_end_ = 0;
        }
    }
    return true;
}

// False: no bucket holds an entry.
bool EvictionOrder::begin_slice(std::uint64_t clock) {
    while (buckets_.size() > 1 && buckets_.front().entries.empty()) buckets_.pop_front();
    if (buckets_.empty() || buckets_.front().entries.empty()) return false;
    // What is accessed from here on goes behind the newest bucket, so that this one has an end.
    if (buckets_.size() == 1) buckets_.push_back({std::max(clock, buckets_.front().first_stamp) + 1, {}});
    ready_until_ = buckets_[1].first_stamp;
    slice_end_ = std::min(buckets_.front().entries.size(), slice_taken_ + kBucketEntriesMax);
    return true;
}

// Those whose lease and hold ended go back to their place by recency.
void EvictionOrder::return_unkept(const KeyTable& table, std::uint64_t now_ms, std::size_t& budget) {
    while (budget > 0 && !kept_.empty() && kept_.front().rank <= now_ms) {
        --budget;
        const Entry entry = pop(kept_);
        const Object* object = live(table, entry);
        if (object == nullptr) {
            drop(entry);
        } else if (object->kept_until_ms() > now_ms) {
            push(kept_, {object->kept_until_ms(), entry});
        } else {
            place(entry, object->stamp);
        }
    }
}

void EvictionOrder::released(Ref ref, const Object& object) {
    if (kept_.empty()) return;
    push(released_, {object.stamp, entry_of(ref, object)});
    // At most twice as many hints as there are entries they may be about.
    if (released_.size() > 2 * kept_.size() + 64) released_all_ = true;
}

// The oldest of those that were set aside and then released by their readers; they lie in kept_ still.
std::optional<EvictionOrder::Victim> EvictionOrder::oldest_released(const KeyTable& table,
                                                                    std::uint64_t now_ms,
                                                                    std::size_t& budget) {
    while (budget > 0 && !released_.empty()) {
        const Ranked top = released_.front();
        const Object* object = live(table, top.entry);
        if (object != nullptr && object->stamp == top.rank && object->kept_until_ms() <= now_ms) {
            return Victim{top.entry.ref, top.rank};
        }
        --budget;
        pop(released_);
        if (object != nullptr && object->kept_until_ms() <= now_ms) {
            push(released_, {object->stamp, top.entry});
        }
    }
    return std::nullopt;
}

std::optional<EvictionOrder::Victim> EvictionOrder::oldest(const KeyTable& table, std::uint64_t now_ms,
                                                           std::uint64_t clock, std::size_t& budget) {
    if (released_all_) {
        // Every kept one is looked at again: cheaper than so many hints.
        for (auto& ranked : kept_) ranked.rank = 0;
        released_.clear();
        released_all_ = false;
    }
    return_unkept(table, now_ms, budget);
    const auto released = oldest_released(table, now_ms, budget);
    while (budget > 0 && refill(table, clock, budget) && budget > 0) {
        const Ranked top = ready_.front();
        const Object* object = live(table, top.entry);
        if (object != nullptr && object->stamp == top.rank && object->kept_until_ms() <= now_ms) {
            if (released && released->rank < top.rank) return released;
            return Victim{top.entry.ref, top.rank};
        }
        --budget;
        pop(ready_);
        if (object == nullptr) {
            drop(top.entry);
        } else if (object->stamp != top.rank) {
            place(top.entry, object->stamp);
        } else {
            push(kept_, {object->kept_until_ms(), top.entry});
        }
    }
    return budget > 0 ? released : std::nullopt;
}

std::optional<EvictionOrder::Victim> EvictionOrder::oldest_kept(const KeyTable& table, std::size_t& budget) {
    while (budget > 0 && !kept_.empty()) {
        const Ranked top = kept_.front();
        const Object* object = live(table, top.entry);
        if (object != nullptr && object->kept_until_ms() == top.rank) return Victim{top.entry.ref, top.rank};
        --budget;
        pop(kept_);
        if (object == nullptr) {
            drop(top.entry);
        } else {
            push(kept_, {object->kept_until_ms(), top.entry});
        }
    }
    return std::nullopt;
}

void EvictionOrder::compact(const KeyTable& table, std::uint64_t clock, std::size_t& budget) {
    if (live_count_ > 0) open_bucket_if_due(clock);
    const auto left = [&](const Entry& entry) {
        if (live(table, entry) != nullptr) return false;
        drop(entry);
        return true;
    };
    const auto left_ranked = [&](const Ranked& ranked) { return left(ranked.entry); };
    if (entry_count_ <= 2 * live_count_ + kBucketEntriesMax) return;
    // The first bucket may be half taken; it is met soon.
    for (compact_position_ = std::max<std::size_t>(compact_position_, 1);
         budget > 0 && compact_position_ < buckets_.size(); ++compact_position_) {
        auto& entries = buckets_[compact_position_].entries;
        budget -= std::min(budget, entries.size());
        std::erase_if(entries, left);
        entries.shrink_to_fit();
    }
    if (compact_position_ < buckets_.size() || budget == 0) return;
    compact_position_ = 0;
    for (auto* heap : {&ready_, &kept_}) {
        budget -= std::min(budget, heap->size());
        std::erase_if(*heap, left_ranked);
        std::make_heap(heap->begin(), heap->end());
    }
}

std::vector<Ref> EvictionOrder::named(const KeyTable& table) const {
    std::vector<Ref> refs;
    const auto add = [&](const Entry& entry) {
        if (live(table, entry) != nullptr) refs.push_back(entry.ref);
    };
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
        const auto& entries = buckets_[i].entries;
        for (std::size_t j = i == 0 ? slice_taken_ : 0; j < entries.size(); ++j) add(entries[j]);
    }
    for (const auto* heap : {&ready_, &kept_}) {
        for (const auto& ranked : *heap) add(ranked.entry);
    }
    return refs;
}

}  // namespace mooncake::metadata
