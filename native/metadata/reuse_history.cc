#include "metadata/reuse_history.h"

namespace mooncake::metadata {

namespace {

ReuseHistory::Set empty_set() {
    ReuseHistory::Set set{};
    set.kinds.fill(ReuseHistory::kEmpty);
    return set;
}

}  // namespace

ReuseHistory::ReuseHistory() {
    for (auto& sets : shards_) sets.assign(1, empty_set());
    set_count_ = kShards;
}

ReuseHistory::Entry ReuseHistory::find(std::uint64_t hash) {
    Set& set = set_of(hash);
    for (std::size_t i = 0; i < kSetEntries; ++i) {
        if (set.prints[i] == print_of(hash) && set.kinds[i] != kEmpty) return {&set, i};
    }
    return {};
}

ReuseHistory::Entry ReuseHistory::add(std::uint64_t hash, std::uint32_t clock) {
    Set& set = set_of(hash);
    std::size_t chosen = 0;
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < kSetEntries; ++i) {
        if (set.kinds[i] == kEmpty) {
            chosen = i;
            ++entry_count_;
            break;
        }
        if (clock - set.stamps[i] >= most) {
            most = clock - set.stamps[i];
            chosen = i;
        }
    }
    set.prints[chosen] = print_of(hash);
    return {&set, chosen};
}

void ReuseHistory::fit(std::size_t sets_max) {
    std::vector<Set>& sets = shards_[grow_shard_];
    if (set_count_ + sets.size() > sets_max) return;
    grow(sets);
    grow_shard_ = (grow_shard_ + 1) % kShards;
}

void ReuseHistory::grow(std::vector<Set>& sets) {
    const std::size_t before = sets.size();
    sets.resize(2 * before, empty_set());
    set_count_ += before;
    for (std::size_t from = 0; from < before; ++from) {
        for (std::size_t i = 0; i < kSetEntries; ++i) {
            Set& set = sets[from];
            if (set.kinds[i] == kEmpty || (set.prints[i] & before) == 0) continue;
            Set& to = sets[from + before];
            to.prints[i] = set.prints[i];
            to.stamps[i] = set.stamps[i];
            to.kinds[i] = set.kinds[i];
            to.flags[i] = set.flags[i];
            set.kinds[i] = kEmpty;
        }
    }
    scan_set_ = 0;
}

}  // namespace mooncake::metadata
