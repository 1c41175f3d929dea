// Where a new value goes: the choice of segments, and what is done when none has room.
#include <algorithm>

#include "metadata/machine.h"
#include "wire/range_bytes.h"

namespace mooncake::metadata {

namespace {

// free_ratio_first looks at this many segments for each copy wanted.
constexpr std::size_t kSampledACopy = 6;
// So many small segments drawn in a row, one of them is taken: many beside few large ones fill a bit sooner.
constexpr std::size_t kDrawsMax = 64;
// A promise outlives the driver's patience (alloc_wait_ms, 100) and ends by itself if its command was
// dropped.
constexpr std::uint64_t kPromiseMs = 1'000;

bool is_loopback(std::string_view host) {
    return host.empty() || host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Gathers segments for one value: each at most once, and while it can on hosts of their own.
class Choice {
  public:
    Choice(const Segments& segments, std::size_t wanted) : segments_(segments), wanted_(wanted) {}

    bool complete() const { return chosen_.size() == wanted_; }
    void take(SegmentIndex index) {
        if (!complete() && std::find(chosen_.begin(), chosen_.end(), index) == chosen_.end()) {
            chosen_.push_back(index);
        }
    }
    // First those on new hosts, then, for lack of hosts, any.
    void take_all(std::span<const SegmentIndex> candidates) {
        if (wanted_ > 1) {
            for (const auto index : candidates) {
                if (!shares_host(index)) take(index);
            }
        }
        for (const auto index : candidates) {
            if (complete()) return;
            take(index);
        }
    }
    std::vector<SegmentIndex> chosen() && { return std::move(chosen_); }

  private:
    bool shares_host(SegmentIndex index) const {
        const std::string& host = segments_.at(index).host_id;
        return !host.empty() && std::any_of(chosen_.begin(), chosen_.end(), [&](SegmentIndex other) {
            return segments_.at(other).host_id == host;
        });
    }

    const Segments& segments_;
    std::size_t wanted_;
    std::vector<SegmentIndex> chosen_;
};

}  // namespace

// A place in the list: the larger a segment the likelier, so that those of different sizes fill alike.
std::size_t Machine::draw_by_capacity(const std::vector<SegmentIndex>& dram) {
    const std::uint64_t largest = segments_.largest_dram_bytes();
    std::size_t drawn = random_.below(dram.size());
    for (std::size_t more = kDrawsMax; more > 0; --more) {
        const std::uint64_t capacity = segments_.at(dram[drawn]).capacity_bytes;
        if (capacity == largest || random_.below(largest) < capacity) break;
        drawn = random_.below(dram.size());
    }
    return drawn;
}

std::vector<SegmentIndex> Machine::choose_segments(const wire::PutStart& request, const Session& session,
                                                   std::uint64_t size) {
    const std::uint64_t bytes = wire::range_bytes(size, wire::Tier::kDram);
    const auto& dram = segments_.mounted_dram();
    const wire::AvoidList& avoid = request.request.avoid;
    const auto has_room = [&](SegmentIndex index) {
        const Segment& segment = segments_.at(index);
        return segment.fits(bytes) && !avoid.contains(segment.id);
    };
    Choice choice(segments_, request.options.replica_count);
    for (const auto name : request.preferred) {
        for (const auto index : dram) {
            if (segments_.at(index).name == name && has_room(index)) choice.take(index);
        }
    }
    if (choice.complete() || dram.empty()) return std::move(choice).chosen();

    // All that have room, from a random one on; a sample is enough to pick the freest from.
    const bool by_free = options_.allocation == AllocationStrategy::kFreeRatioFirst;
    const std::size_t enough = by_free ? kSampledACopy * request.options.replica_count : dram.size();
    const std::size_t start = draw_by_capacity(dram);
    const bool local = (request.options.flags & wire::kPutLocal) != 0 ||
                       options_.allocation == AllocationStrategy::kLocalFirst;
    std::vector<SegmentIndex> candidates;
    for (std::size_t i = 0; i < dram.size(); ++i) {
        const SegmentIndex index = dram[(start + i) % dram.size()];
        if (!has_room(index)) continue;
        if (local && !is_loopback(session.host_id) && segments_.at(index).host_id == session.host_id) {
            choice.take(index);
            if (choice.complete()) break;
        } else if (candidates.size() < enough) {
            candidates.push_back(index);
            // One copy anywhere: the first that has room is it.
            if (!by_free && !local && request.options.replica_count == 1) break;
        } else if (!local) {
            break;
        }
    }
    if (by_free) {
        std::stable_sort(candidates.begin(), candidates.end(), [&](SegmentIndex a, SegmentIndex b) {
            return segments_.at(a).free_ratio() > segments_.at(b).free_ratio();
        });
    }
    choice.take_all(candidates);
    return std::move(choice).chosen();
}

// A node without a connection will not report anything freed soon.
bool Machine::answers(const Segment& segment) const {
    const Session* owner = sessions_.find(segment.owner);
    return owner != nullptr && (owner->attached || !owner->was_attached);
}

// Called when no segment fits now. Counts on what is retiring already before it evicts more, and stays on the
// segment whose victim is oldest, so that no more goes than the put needs.
Machine::Room Machine::make_room(std::uint64_t bytes, const wire::AvoidList& avoid, WaitingKey& waiting,
                                 std::size_t& budget, Effects& effects) {
    std::vector<SegmentIndex> candidates;
    for (const auto index : segments_.mounted_dram()) {
        const Segment& segment = segments_.at(index);
        if (!is_candidate(segment, avoid, bytes) || !answers(segment)) continue;
        if (segment.will_fit(bytes)) {
            promise(index, bytes, waiting);
            return Room::kWillCome;
        }
        if (segment.could_fit(bytes, options_.evict_soft_pinned)) candidates.push_back(index);
    }
    if (candidates.empty()) return Room::kNone;
    ++counters_.eviction_rounds;
    for (const Pass pass : kPasses) {
        if (pass >= Pass::kSoftPinned && !options_.evict_soft_pinned) break;
        auto heap = victims(candidates, pass, budget);
        while (!heap.empty() && budget > 0) {
            const SegmentIndex index = heap.front().segment;
            while (const auto victim = victim_on(index, pass, budget)) {
                evict(victim->ref, pass, effects);
                if (!segments_.at(index).will_fit(bytes)) continue;
                ++counters_.eviction_successes;
                promise(index, bytes, waiting);
                return Room::kWillCome;
            }
            std::pop_heap(heap.begin(), heap.end());
            heap.pop_back();
        }
        if (budget == 0) return Room::kAgain;
    }
    return Room::kNone;
}

void Machine::promise(SegmentIndex index, std::uint64_t bytes, WaitingKey& waiting) {
    segments_.at(index).promised_bytes += bytes;
    waiting.promise = ++promise_counter_;
    promises_.push_back({waiting.promise, index, segments_.at(index).id, bytes, later(kPromiseMs)});
}

void Machine::release_promise(std::uint64_t id) {
    if (id == 0 || promises_.empty() || id < promises_.front().id) return;
    Promise& promise = promises_[id - promises_.front().id];
    Segment& segment = segments_.at(promise.segment);
    if (segment.is_mounted() && segment.id == promise.segment_id) segment.promised_bytes -= promise.bytes;
    promise.bytes = 0;
}

void Machine::expire_promises() {
    while (!promises_.empty() && (promises_.front().bytes == 0 || promises_.front().until_ms <= now_ms_)) {
        release_promise(promises_.front().id);
        promises_.pop_front();
    }
}

// The bounds on the master's own memory, honoured by eviction.
Machine::Room Machine::make_room_for_key(std::size_t key_bytes, std::size_t& budget, Effects& effects) {
    const auto fits = [&] {
        return table_.size() < options_.max_keys &&
               metadata_bytes() + KeyTable::record_bytes(key_bytes) <= options_.max_metadata_bytes;
    };
    if (fits()) return Room::kIsThere;
    ++counters_.eviction_rounds;
    for (const Pass pass : kPasses) {
        if (pass >= Pass::kSoftPinned && !options_.evict_soft_pinned) break;
        auto heap = victims(segments_.mounted_dram(), pass, budget);
        while (!heap.empty() && budget > 0) {
            evict(heap.front().victim.ref, pass, effects);
            if (fits()) {
                ++counters_.eviction_successes;
                return Room::kIsThere;
            }
            advance(heap, pass, budget);
        }
        if (budget == 0) return Room::kAgain;
    }
    return Room::kNone;
}

// What a key costs beside its value: records, slots, order entries; and the puts and retirements under way.
std::size_t Machine::metadata_bytes() const {
    constexpr std::size_t kOrderEntryBytes = 12;
    constexpr std::size_t kRetiringEntryBytes = 64;
    return table_.bytes() + extras_.used_bytes() + policy_->bytes() + visible_count_ * kOrderEntryBytes +
           puts_.size() * sizeof(Put) + retiring_.size() * kRetiringEntryBytes;
}

}  // namespace mooncake::metadata
