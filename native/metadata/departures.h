// Why keys that are not there are not there: the last end of each, in bounded memory. Only misses are
// explained by it; nothing decides by it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "wire/lane.h"

namespace mooncake::metadata {

// One slot a hash, the newest end wins it: 2 MiB, allocated with the first end. Of so many keys that ended,
// more and more of the older ones read as never stored.
class Departures {
  public:
    static constexpr std::size_t kSlots = std::size_t{1} << 18;

    struct Departure {
        wire::Absence reason = wire::Absence::kNeverStored;
        std::uint64_t at_ms = 0;  // to the second
    };

    void note(std::uint64_t hash, wire::Absence reason, std::uint64_t now_ms) {
        if (slots_.empty()) slots_.resize(kSlots);
        slots_[index_of(hash)] = {tag_of(hash),
                                  static_cast<std::uint32_t>(reason) << kSecondsBits |
                                      (static_cast<std::uint32_t>(now_ms / 1'000) & kSecondsMask)};
    }
    std::optional<Departure> find(std::uint64_t hash) const {
        if (slots_.empty()) return std::nullopt;
        const Slot& slot = slots_[index_of(hash)];
        if (slot.tag != tag_of(hash)) return std::nullopt;
        return Departure{static_cast<wire::Absence>(slot.packed >> kSecondsBits),
                         std::uint64_t{slot.packed & kSecondsMask} * 1'000};
    }

  private:
    struct Slot {
        std::uint32_t tag = 0;  // 0: free
        std::uint32_t packed = 0;
    };
    static constexpr unsigned kSecondsBits = 28;  // eight years of them
    static constexpr std::uint32_t kSecondsMask = (1u << kSecondsBits) - 1;

    static std::size_t index_of(std::uint64_t hash) { return hash & (kSlots - 1); }
    static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32) | 1; }

    std::vector<Slot> slots_;
};

}  // namespace mooncake::metadata
