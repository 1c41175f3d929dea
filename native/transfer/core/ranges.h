// Which memory of this process transfers may touch, and which of it they touch now.
//
// A range that is being withdrawn takes no new hold and stays known until the last one is gone: until then
// somebody may write to it. Owns the bookkeeping alone: no lock, no memory, no waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "wire/status.h"
#include "wire/transfer.h"

namespace mooncake::transfer {

// Registered at once; beyond it BUSY.
inline constexpr std::size_t kRangesMax = 65'536;

enum class RangeKind : std::uint8_t {
    kRegistered,  // the caller's memory
    kManaged,     // ours, lent to the caller
};

class Ranges {
  public:
    using HoldId = std::uint64_t;

    // kOk; kInvalidParams: empty, at address 0, or beyond the last address; kSegmentAlreadyExists: overlaps
    // what is known, though it is being withdrawn; kBusy: kRangesMax are.
    wire::Status add(wire::MemoryRange range, RangeKind kind);

    // Claims all of it or, when `asked[refused]` is not wholly registered memory, nothing. Neighbouring
    // ranges are as good as one.
    std::optional<HoldId> hold(std::span<const wire::MemoryRange> asked, std::size_t& refused);
    // Claims what of it is registered: memory of the caller's own that need not be. nullopt: some of it is
    // being withdrawn.
    std::optional<HoldId> hold_registered(std::span<const wire::MemoryRange> asked, std::size_t& refused);
    void release(HoldId hold);
    // Whether all of it lies in ranges that take holds.
    bool covers(wire::MemoryRange asked);

    // From now on nothing new may touch the range that begins there. False: no such range of this kind, or it
    // is being withdrawn already.
    bool begin_withdrawal(std::uint64_t address, RangeKind kind);
    // Whether somebody touches it still, and who.
    bool is_held(std::uint64_t address) const { return ranges_.at(address).holds > 0; }
    std::vector<HoldId> holders(std::uint64_t address) const;
    // Once nobody does: it is forgotten.
    void end_withdrawal(std::uint64_t address);

    // The one that was added first; nullopt: none is there.
    std::optional<wire::MemoryRange> first() const;
    std::size_t size() const { return ranges_.size(); }
    std::size_t hold_count() const { return holds_.size(); }
    void check_invariants() const;

  private:
    struct Range {
        std::uint64_t length = 0;
        std::uint64_t number = 0;  // in order of their adding
        std::size_t holds = 0;
        RangeKind kind = RangeKind::kRegistered;
        bool is_withdrawn = false;
    };
    using Map = std::map<std::uint64_t, Range>;

    Map::iterator containing(std::uint64_t address);
    // The ranges that it lies in, one after the other; false: not all of it does.
    bool find_all(wire::MemoryRange asked, std::vector<std::uint64_t>& addresses);
    std::optional<HoldId> claim(std::vector<std::uint64_t> addresses);

    Map ranges_;  // by address; they do not overlap
    std::map<std::uint64_t, std::uint64_t> addresses_by_number_;
    std::map<HoldId, std::vector<std::uint64_t>> holds_;  // the ranges each touches, each once
    std::uint64_t last_number_ = 0;
    HoldId last_hold_ = 0;
};

}  // namespace mooncake::transfer
