// Where values were found by a lookup, for a while: the next read of such a key goes straight to the node.
//
// An entry is a belief, not a right: the node answers *gone* when it does not hold exactly that replica of
// that key, and the reader looks the key up again. What must hold is that no entry lives until a remove or
// another value of its key may be acknowledged without its node's word; so it lives for as long as the master
// says (LookupRecord::location_ttl), counted from the sending of the question, by a clock that goes on while
// the machine sleeps (ARCHITECTURE, Life of a remembered place).
//
// Knows no clock, lock or peer. Its memory is bounded by the number of entries, and allocated when the first
// one comes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wire/ids.h"
#include "wire/lane.h"

namespace mooncake::client {

// What has more places than this is looked up each time.
inline constexpr std::size_t kRememberedPlacesMax = 4;
inline constexpr std::size_t kLocationsMax = std::size_t{1} << 20;
// Reads by remembered places are told to the master in batches so long after the first, and so many different
// keys at once; beyond it they are dropped, and counted.
inline constexpr std::uint64_t kAccessDelayMs = 500;
inline constexpr std::size_t kAccessesMax = 16'384;
inline constexpr std::size_t kAccessBytesMax = 1u << 20;

struct Location {
    wire::PutId put_id = 0;
    std::uint64_t size = 0;
    std::uint32_t place_count = 0;
    std::array<wire::ReplicaPlace, kRememberedPlacesMax> places{};
};

// When a question was asked: of one asked before the session changed nothing is remembered.
struct LocationStamp {
    std::uint64_t ms = 0;
    std::uint64_t generation = 0;
};

struct LocationCounts {
    std::uint64_t hits = 0;             // values read where they were remembered
    std::uint64_t stale = 0;            // values that were not there any more, or could not be read there
    std::uint64_t evicted = 0;          // entries that made room for others before their time
    std::uint64_t untold_accesses = 0;  // reads that the master was not told of
    std::uint64_t entries = 0;          // now
};

// Reads to be told: keys packed one after another with their lengths, and how often each was read.
struct Accesses {
    std::vector<std::uint16_t> lengths;
    std::string bytes;
    std::vector<std::uint32_t> counts;
};

class LocationCache {
  public:
    // entries_max = 0: nothing is remembered.
    explicit LocationCache(std::size_t entries_max) : entries_max_(entries_max) {}

    bool is_on() const { return entries_max_ != 0; }
    LocationStamp stamp(std::uint64_t ms) const { return {ms, generation_}; }

    // digest: wire::key_digest of the key; the key itself decides.
    bool recall(std::string_view key, std::uint64_t digest, std::uint64_t ms, Location& into) const;
    void remember(std::string_view key, std::uint64_t digest, const Location& location, LocationStamp asked,
                  std::uint64_t ttl_ms);
    // It was not there.
    void forget(std::string_view key, std::uint64_t digest);
    // This client changed the key: what was asked until now is not remembered any more.
    void bar(std::string_view key, std::uint64_t digest, std::uint64_t ms);
    // Another session, master or reign.
    void forget_all() { ++generation_; }

    // A value was read where it was remembered.
    void accessed(std::string_view key, std::uint64_t digest, std::uint64_t now_ms);
    void went_stale() { ++counts_.stale; }
    // What take_accesses() gave will not be told by anybody.
    void lost_accesses(const Accesses& lost);
    std::uint64_t accesses_due_ms() const {
        return accesses_.counts.empty() ? ~std::uint64_t{0} : accesses_since_ms_ + kAccessDelayMs;
    }
    bool has_accesses() const { return !accesses_.counts.empty(); }
    Accesses take_accesses();

    LocationCounts counts(std::uint64_t ms) const;

  private:
    static constexpr std::size_t kWays = 4;
    // Two keys that share one only keep each other from being remembered for a moment.
    static constexpr std::size_t kBars = 4'096;

    struct Slot {
        std::string key;
        std::uint64_t generation = 0;
        std::uint64_t until_ms = 0;  // 0: free
        Location location;
        std::uint64_t access_round = 0;  // in which accesses_.counts[access] is this key's
        std::uint32_t access = 0;
    };
    bool is_alive(const Slot& slot, std::uint64_t ms) const {
        return slot.generation == generation_ && ms < slot.until_ms;
    }
    std::size_t set_of(std::uint64_t digest) const { return digest % (slots_.size() / kWays) * kWays; }
    const Slot* find(std::string_view key, std::uint64_t digest) const;
    Slot* find(std::string_view key, std::uint64_t digest) {
        return const_cast<Slot*>(static_cast<const LocationCache*>(this)->find(key, digest));
    }

    const std::size_t entries_max_;
    std::vector<Slot> slots_;
    std::vector<std::uint64_t> bars_;  // ms; a key is barred until then
    std::uint64_t generation_ = 1;
    Accesses accesses_;
    std::uint64_t access_round_ = 1;
    std::uint64_t accesses_since_ms_ = 0;
    LocationCounts counts_;
};

}  // namespace mooncake::client
