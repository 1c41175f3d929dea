// The default policy: learns from each access how long it pays to keep what was asked for like that.
//
// An access is of a class by what its request looked like: how many of its first keys were known, how many
// were new, and whether it is the last key. (A conversation that goes on asks for much that is known and a
// little that is new; one that changes its subject the other way round. The last block of a prompt is cut
// off where the prompt ends, and is hardly ever asked for again.) Whether and when keys come again after an
// access of each class is learnt (reuse_curves.h), from keys that are there and from ghosts alike
// (reuse_history.h), and so how long each class should stay in the room there is.
//
// A rank is the access's time less what its class stays shorter than the one that stays longest. Classes
// that do not differ leave LRU. All keys of a request but the last are of one class, and earlier ones get
// the higher rank: a prefix goes from its end.
#pragma once

#include <array>

#include "metadata/eviction_policy.h"
#include "metadata/reuse_curves.h"
#include "metadata/reuse_history.h"

namespace mooncake::metadata {

class AdaptivePolicy : public EvictionPolicy {
  public:
    void asked(std::span<Access> keys, std::size_t first, std::size_t total, const PoolSize& pool) override;
    void put_began(std::span<Access> keys, const PoolSize& pool) override;
    std::uint64_t filled(std::uint64_t hash) override;
    std::uint64_t clock() const override { return clock_; }
    std::size_t bytes() const override { return history_.bytes() + sizeof(*this); }
    PolicyFigures figures() const override {
        return {history_.entry_count(), curves_.expected_hits(), curves_.reachable_hits()};
    }

  private:
    // What a request looked like, and how many of its keys come after these.
    struct Asked {
        std::size_t known, fresh, after;
    };
    std::uint32_t age(std::uint32_t stamp) const { return static_cast<std::uint32_t>(clock_) - stamp; }
    std::uint64_t rank(std::uint64_t at, std::size_t kind, unsigned flags) const;
    bool is_sampled(std::uint64_t hash) const;
    std::size_t known_prefix(std::span<const Access> keys);
    template <class IsTold>
    void note(std::span<Access> keys, const Asked& as, IsTold&& is_told);
    void time_passes(std::size_t accesses, const PoolSize& pool);
    void watch();

    // Ranks count from here, so that what a class stays shorter can be taken off.
    static constexpr std::uint64_t kClockBegin = std::uint64_t{1} << 40;
    std::uint64_t clock_ = kClockBegin;
    std::uint64_t watch_turn_ = 0;
    std::uint64_t divide_at_ = kClockBegin;
    std::uint64_t sampled_of_64_ = 16;
    PoolSize pool_;
    ReuseHistory history_;
    ReuseCurves curves_;
};

}  // namespace mooncake::metadata
