// Why keys that are not there are not there: the last end of each, in bounded memory. Only misses are
// explained by it; nothing decides by it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "wire/lane.h"

namespace mooncake::metadata {

// Sets of four slots, of which a new end takes the oldest: 2 MiB, allocated with the first end. Of so many
// keys that ended, more and more of the older ones read as never stored.
class Departures {
  public:
    static constexpr std::size_t kSlots = std::size_t{1} << 18;
    static constexpr std::size_t kWays = 4;

    struct Departure {
        wire::Absence reason = wire::Absence::kNeverStored;
        std::uint64_t at_ms = 0;  // to the second
    };

    void note(std::uint64_t hash, wire::Absence reason, std::uint64_t now_ms) {
        if (slots_.empty()) slots_.resize(kSlots);
        Slot* into = &slots_[set_of(hash)];
        for (Slot* slot = into; slot != &slots_[set_of(hash)] + kWays; ++slot) {
            if (slot->tag == tag_of(hash)) {
                into = slot;
                break;
            }
            if (seconds_of(*slot) < seconds_of(*into)) into = slot;
        }
        *into = {tag_of(hash), static_cast<std::uint32_t>(reason) << kSecondsBits |
                                   (static_cast<std::uint32_t>(now_ms / 1'000 + 1) & kSecondsMask)};
    }
    std::optional<Departure> find(std::uint64_t hash) const {
        if (slots_.empty()) return std::nullopt;
        for (std::size_t i = set_of(hash); i < set_of(hash) + kWays; ++i) {
            const Slot& slot = slots_[i];
            if (slot.tag != tag_of(hash)) continue;
            return Departure{static_cast<wire::Absence>(slot.packed >> kSecondsBits),
                             std::uint64_t{seconds_of(slot) - 1} * 1'000};
        }
        return std::nullopt;
    }

  private:
    struct Slot {
        std::uint32_t tag = 0;  // 0: free
        std::uint32_t packed = 0;
    };
    static constexpr unsigned kSecondsBits = 28;  // eight years of them
    static constexpr std::uint32_t kSecondsMask = (1u << kSecondsBits) - 1;

    static std::size_t set_of(std::uint64_t hash) { return (hash & (kSlots / kWays - 1)) * kWays; }
    // Counted from 1: 0 is a free slot's.
    static std::uint32_t seconds_of(const Slot& slot) { return slot.packed & kSecondsMask; }
    static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32) | 1; }

    std::vector<Slot> slots_;
};

}  // namespace mooncake::metadata
