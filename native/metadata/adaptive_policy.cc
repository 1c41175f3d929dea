#include "metadata/adaptive_policy.h"

#include <algorithm>

namespace mooncake::metadata {

namespace {

// An engine asks for the blocks of one prompt several times: whether they are there, where, and again when it
// stores them. Within this part of the live keys' number of accesses it is the same demand.
constexpr std::size_t kSameDemandPart = 16;
// What was asked for so long ago, in part of the live keys' number of accesses, is not being computed still.
constexpr std::size_t kComputedPart = 2;
// The room is divided anew so often, and at most every so many accesses.
constexpr std::size_t kDividePart = 8;
constexpr std::size_t kDivideMin = 4096;
constexpr std::size_t kWatchEvery = 2;  // accesses; a look at a set of the history
constexpr double kFadeADivision = 0.99;
// An entry this old is dropped before its age, of 32 bits, begins anew.
constexpr std::uint32_t kAgeMax = 1u << 31;

enum Flags : unsigned {
    kMissed = 1,       // was asked for and is not put since
    kStaysLonger = 2,  // is of the share of its class that does
    kIsEnd = 4,        // was among the last two of its request
    kIsSampled = 8,    // is one of those of which is learnt
};

// Of the keys of a request these few are remembered when they are not being put: a sample, of which is
// learnt, and the last two, by which the next request of a conversation is known. So the memory reaches
// further back.
constexpr std::size_t kEnd = 2;
constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15u;

// A small pool remembers all it may and learns from every fourth key. A large one has examples enough: its
// history takes a quarter of the memory a key, and learns from every sixteenth, so that it reaches as far
// back. (With both on the conversation trace at 5,000, 10,000 and 15,000 blocks: hits 0.161, 0.231, 0.269,
// and 0.169, 0.231, 0.267 without.)
constexpr std::size_t kFullHistoryKeys = 1u << 16;
constexpr std::size_t kKeysASet = 4;  // beyond that

std::size_t history_sets(std::size_t live_keys) {
    return std::min(live_keys, std::max(kFullHistoryKeys, live_keys / kKeysASet));
}

std::uint64_t sampled_of_64(std::size_t live_keys) {
    return live_keys == 0 ? 16 : 16 * history_sets(live_keys) / live_keys;
}

template <std::size_t N>
std::size_t bucket(std::size_t count, const std::array<std::size_t, N>& limits) {
    return static_cast<std::size_t>(std::upper_bound(limits.begin(), limits.end(), count) - limits.begin());
}

// known: of the request's first keys; fresh: the rest.
std::size_t class_of(std::size_t known, std::size_t fresh, bool is_last) {
    static constexpr std::array<std::size_t, 4> kKnown{1, 2, 6, 21};
    static constexpr std::array<std::size_t, 5> kFresh{2, 4, 9, 21, 51};
    return (bucket(known, kKnown) * (kFresh.size() + 1) + bucket(fresh, kFresh)) * 2 + (is_last ? 1 : 0);
}

}  // namespace

// Of one that was asked for `at`.
std::uint64_t AdaptivePolicy::rank(std::uint64_t at, std::size_t kind, unsigned flags) const {
    const ReuseCurves::Stay& stay = curves_.stay(kind);
    const double kept = (flags & kStaysLonger) != 0 ? stay.longer : stay.shorter;
    return at - static_cast<std::uint64_t>(curves_.longest() - kept);
}

bool AdaptivePolicy::is_sampled(std::uint64_t hash) const { return hash * kMix >> 58 < sampled_of_64_; }

// How many of the first keys were asked for before. Of keys that are not remembered either way those before
// one that is known count as known.
std::size_t AdaptivePolicy::known_prefix(std::span<const Access> keys) {
    std::size_t known = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (keys[i].is_present || history_.find(keys[i].hash)) {
            known = i + 1;
        } else if (is_sampled(keys[i].hash)) {
            break;
        }
    }
    return known;
}

// Notes the keys as asked for now, but for those of which is_told(entry): they were before.
template <class IsTold>
void AdaptivePolicy::note(std::span<Access> keys, const Asked& as, IsTold&& is_told) {
    // Keys that are asked for together stay together, each time they are.
    const double draw = static_cast<double>(keys.back().hash * kMix >> 40) * 0x1p-24;
    for (const auto& key : keys) {
        if (is_sampled(key.hash)) history_.prefetch(key.hash);
    }
    ReuseHistory::Entry told;  // the last one met, if it was told: its neighbours are of the same request
    for (std::size_t i = 0; i < keys.size(); ++i) {
        Access& key = keys[i];
        const std::uint64_t at = clock_ - i;
        const std::size_t after = as.after + keys.size() - i - 1;
        const std::size_t kind = class_of(as.known, as.fresh, after == 0);
        const bool is_learnt = is_sampled(key.hash);
        const unsigned flags = (key.is_present ? 0u : kMissed) | (after < kEnd ? kIsEnd : 0u) |
                               (draw < curves_.stay(kind).share ? kStaysLonger : 0u) |
                               (is_learnt ? kIsSampled : 0u);
        if (key.is_present && !is_learnt && after >= kEnd) {
            key.rank = told ? rank(at, told.kind(), told.flags()) : rank(at, kind, flags);
            continue;
        }
        auto entry = history_.find(key.hash);
        if (entry && is_told(entry)) {
            told = entry;
        } else {
            told = {};
            if (is_learnt) {
                if (entry) curves_.came_again(entry.kind(), age(entry.stamp()));
                curves_.began(kind);
            }
            if (!entry) entry = history_.add(key.hash, static_cast<std::uint32_t>(clock_));
            entry.stamp() = static_cast<std::uint32_t>(at);
            entry.kind() = static_cast<std::uint8_t>(kind);
            entry.flags() = static_cast<std::uint8_t>(flags);
        }
        key.rank = rank(at, entry.kind(), entry.flags());
    }
    // No key goes before one that follows it: without it, that one is of no use.
    for (std::size_t i = keys.size() - 1; i-- > 0;) {
        keys[i].rank = std::max(keys[i].rank, keys[i + 1].rank + 1);
    }
}

void AdaptivePolicy::asked(std::span<Access> keys, std::size_t first, std::size_t total,
                           const PoolSize& pool) {
    if (keys.empty()) return;
    time_passes(keys.size(), pool);
    const std::size_t known = known_prefix(keys);
    // Behind the first unknown key nothing of a prompt is known.
    const std::size_t fresh = known < keys.size() ? total - first - known : 0;
    const std::size_t same = pool.live_keys / kSameDemandPart;
    note(keys, {first + known, fresh, total - first - keys.size()},
         [&](const auto& entry) { return age(entry.stamp()) < same; });
}

// Of what was asked for and missed it is known already.
void AdaptivePolicy::put_began(std::span<Access> keys, const PoolSize& pool) {
    const std::size_t computed = std::max(pool.live_keys / kComputedPart, keys.size());
    const auto is_told = [&](const ReuseHistory::Entry& entry) {
        return (entry.flags() & kMissed) != 0 && age(entry.stamp()) <= computed;
    };
    const std::size_t known = known_prefix(keys);
    const std::size_t fresh = keys.size() - known;
    const auto end = std::remove_if(keys.begin(), keys.end(), [&](const Access& key) {
        if (key.is_present) return true;
        const auto entry = history_.find(key.hash);
        return entry && is_told(entry);
    });
    const auto untold = keys.first(static_cast<std::size_t>(end - keys.begin()));
    if (untold.empty()) return;
    time_passes(untold.size(), pool);
    note(untold, {known, fresh, 0}, is_told);
}

std::uint64_t AdaptivePolicy::filled(std::uint64_t hash) {
    const auto entry = history_.find(hash);
    if (!entry) return ++clock_;
    entry.flags() &= static_cast<std::uint8_t>(~kMissed);
    const std::uint64_t found = rank(clock_ - age(entry.stamp()), entry.kind(), entry.flags());
    if ((entry.flags() & (kIsEnd | kIsSampled)) == 0) history_.erase(entry);
    return found;
}

void AdaptivePolicy::time_passes(std::size_t accesses, const PoolSize& pool) {
    pool_ = pool;
    // Never up again: a key that had not been sampled would look as if it had not come again.
    sampled_of_64_ = std::min(sampled_of_64_, sampled_of_64(pool.live_keys));
    for (std::size_t i = 0; i < accesses; ++i) {
        if (++watch_turn_ % kWatchEvery == 0) watch();
    }
    clock_ += accesses;
    if (clock_ < divide_at_) return;
    divide_at_ = clock_ + std::max(pool.live_keys / kDividePart, kDivideMin);
    curves_.divide(pool.keys_that_fit);
    curves_.fade(kFadeADivision);
}

// A set at a time: what it holds was watched while as many accesses passed as one round of the table takes.
void AdaptivePolicy::watch() {
    history_.fit(history_sets(pool_.live_keys));
    const auto accesses = static_cast<double>(history_.set_count() * kWatchEvery);
    history_.scan([&](const ReuseHistory::Entry& entry) {
        const std::uint32_t old = age(entry.stamp());
        if (old >= kAgeMax) {
            history_.erase(entry);
        } else if ((entry.flags() & kIsSampled) != 0) {
            curves_.watched(entry.kind(), old, accesses);
        }
    });
}

}  // namespace mooncake::metadata
