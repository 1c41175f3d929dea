#include "client/core/location_cache.h"

#include <algorithm>
#include <utility>

namespace mooncake::client {

const LocationCache::Slot* LocationCache::find(std::string_view key, std::uint64_t digest) const {
    if (slots_.empty()) return nullptr;
    const Slot* const first = &slots_[set_of(digest)];
    for (const Slot* slot = first; slot != first + kWays; ++slot) {
        if (slot->until_ms != 0 && slot->key == key) return slot;
    }
    return nullptr;
}

bool LocationCache::recall(std::string_view key, std::uint64_t digest, std::uint64_t ms,
                           Location& into) const {
    const Slot* slot = find(key, digest);
    if (slot == nullptr || !is_alive(*slot, ms)) return false;
    into = slot->location;
    return true;
}

void LocationCache::remember(std::string_view key, std::uint64_t digest, const Location& location,
                             LocationStamp asked, std::uint64_t ttl_ms) {
    if (!is_on() || ttl_ms == 0 || asked.generation != generation_) return;
    if (!bars_.empty() && asked.ms <= bars_[digest % kBars]) return;
    if (slots_.empty()) slots_.resize((entries_max_ + kWays - 1) / kWays * kWays);
    Slot* slot = find(key, digest);
    const std::uint64_t until_ms = asked.ms + ttl_ms;
    if (slot == nullptr) {
        Slot* const first = &slots_[set_of(digest)];
        slot = std::min_element(first, first + kWays,
                                [](const Slot& a, const Slot& b) { return a.until_ms < b.until_ms; });
        if (is_alive(*slot, asked.ms)) ++counts_.evicted;
        slot->key.assign(key);
        slot->access_round = 0;
    } else if (is_alive(*slot, asked.ms) && slot->until_ms >= until_ms) {
        return;  // an answer that was overtaken by a later question's
    }
    slot->generation = generation_;
    slot->until_ms = until_ms;
    slot->location = location;
}

void LocationCache::forget(std::string_view key, std::uint64_t digest) {
    if (Slot* slot = find(key, digest)) slot->until_ms = 0;
}

void LocationCache::bar(std::string_view key, std::uint64_t digest, std::uint64_t ms) {
    if (!is_on()) return;
    if (bars_.empty()) bars_.resize(kBars);
    bars_[digest % kBars] = ms;
    forget(key, digest);
}

void LocationCache::accessed(std::string_view key, std::uint64_t digest, std::uint64_t now_ms) {
    ++counts_.hits;
    Slot* slot = find(key, digest);
    if (slot != nullptr && slot->access_round == access_round_) {
        ++accesses_.counts[slot->access];
        return;
    }
    if (accesses_.counts.size() >= kAccessesMax || accesses_.bytes.size() + key.size() > kAccessBytesMax) {
        ++counts_.untold_accesses;
        return;
    }
    if (accesses_.counts.empty()) accesses_since_ms_ = now_ms;
    if (slot != nullptr) {
        slot->access_round = access_round_;
        slot->access = static_cast<std::uint32_t>(accesses_.counts.size());
    }
    accesses_.lengths.push_back(static_cast<std::uint16_t>(key.size()));
    accesses_.bytes.append(key);
    accesses_.counts.push_back(1);
}

Accesses LocationCache::take_accesses() {
    ++access_round_;
    return std::exchange(accesses_, {});
}

void LocationCache::lost_accesses(const Accesses& lost) {
    for (const auto count : lost.counts) counts_.untold_accesses += count;
}

LocationCounts LocationCache::counts(std::uint64_t ms) const {
    LocationCounts counts = counts_;
    counts.entries = static_cast<std::uint64_t>(
        std::count_if(slots_.begin(), slots_.end(), [&](const Slot& slot) { return is_alive(slot, ms); }));
    return counts;
}

}  // namespace mooncake::client
