// When keys were asked for last, and as what: of those that are there and of several times as many that are
// not (ghosts). A table of fixed sets of one cache line; the oldest of a set makes room. It grows to the
// number of sets that it is told.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mooncake::metadata {

class ReuseHistory {
  public:
    static constexpr std::size_t kSetEntries = 6;
    static constexpr std::uint8_t kEmpty = 0xFF;

    struct Set {
        std::array<std::uint32_t, kSetEntries> prints;
        std::array<std::uint32_t, kSetEntries> stamps;
        std::array<std::uint8_t, kSetEntries> kinds;  // the class of the access; kEmpty: no entry
        std::array<std::uint8_t, kSetEntries> flags;  // the user's
    };
    static_assert(sizeof(Set) <= 64);

    struct Entry {
        Set* set = nullptr;
        std::size_t index = 0;

        explicit operator bool() const { return set != nullptr; }
        std::uint32_t& stamp() const { return set->stamps[index]; }
        std::uint8_t& kind() const { return set->kinds[index]; }
        std::uint8_t& flags() const { return set->flags[index]; }
    };

    ReuseHistory();

    void prefetch(std::uint64_t hash) { __builtin_prefetch(&set_of(hash)); }
    Entry find(std::uint64_t hash);
    // Where a key that find() does not know may be noted; `clock` tells which entry is the oldest.
    Entry add(std::uint64_t hash, std::uint32_t clock);
    // Grows to at most so many sets, at most one shard a call.
    void fit(std::size_t sets_max);

    // Walks the table a set at a time, round and round; of what it meets, `visit(entry)`.
    template <class Visit>
    void scan(Visit&& visit) {
        std::vector<Set>& sets = shards_[scan_shard_];
        Set& set = sets[scan_set_];
        for (std::size_t i = 0; i < kSetEntries; ++i) {
            if (set.kinds[i] != kEmpty) visit(Entry{&set, i});
        }
        if (++scan_set_ < sets.size()) return;
        scan_set_ = 0;
        scan_shard_ = (scan_shard_ + 1) % kShards;
    }

    std::size_t set_count() const { return set_count_; }
    std::size_t bytes() const { return set_count_ * sizeof(Set); }
    std::size_t entry_count() const { return entry_count_; }
    void erase(const Entry& entry) {
        entry.kind() = kEmpty;
        --entry_count_;
    }

  private:
    static constexpr std::size_t kShards = 64;  // each grows alone, so that none stalls the others for long
    static std::size_t shard_of(std::uint64_t hash) { return hash >> 58; }
    static std::uint32_t print_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 16); }
    Set& set_of(std::uint64_t hash) {
        std::vector<Set>& sets = shards_[shard_of(hash)];
        return sets[print_of(hash) & (sets.size() - 1)];
    }
    void grow(std::vector<Set>& sets);

    std::array<std::vector<Set>, kShards> shards_;
    std::size_t set_count_ = 0;
    std::size_t entry_count_ = 0;
    std::size_t grow_shard_ = 0;
    std::size_t scan_shard_ = 0;
    std::size_t scan_set_ = 0;
};

}  // namespace mooncake::metadata
