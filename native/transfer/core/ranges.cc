#include "transfer/core/ranges.h"

#include <algorithm>
#include <cassert>

namespace mooncake::transfer {

using wire::MemoryRange;
using wire::Status;

Status Ranges::add(MemoryRange range, RangeKind kind) {
    const std::uint64_t end = range.address + range.length;
    if (range.length == 0 || range.address == 0 || end < range.address) return Status::kInvalidParams;
    const auto after = ranges_.lower_bound(range.address);
    if (after != ranges_.end() && after->first < end) return Status::kSegmentAlreadyExists;
    if (after != ranges_.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second.length > range.address) return Status::kSegmentAlreadyExists;
    }
    if (ranges_.size() >= kRangesMax) return Status::kBusy;
    ranges_.emplace_hint(after, range.address, Range{range.length, ++last_number_, 0, kind, false});
    addresses_by_number_.emplace(last_number_, range.address);
    return Status::kOk;
}

// The range that holds this address, or end().
Ranges::Map::iterator Ranges::containing(std::uint64_t address) {
    auto found = ranges_.upper_bound(address);
    if (found == ranges_.begin()) return ranges_.end();
    --found;
    return address - found->first < found->second.length ? found : ranges_.end();
}

bool Ranges::find_all(MemoryRange asked, std::vector<std::uint64_t>& addresses) {
    const std::uint64_t end = asked.address + asked.length;
    if (asked.length == 0 || end < asked.address) return false;
    for (std::uint64_t at = asked.address; at < end;) {
        const auto found = containing(at);
        if (found == ranges_.end() || found->second.is_withdrawn) return false;
        if (addresses.empty() || addresses.back() != found->first) addresses.push_back(found->first);
        at = found->first + found->second.length;
    }
    return true;
}

bool Ranges::covers(MemoryRange asked) {
    std::vector<std::uint64_t> ignored;
    return find_all(asked, ignored);
}

std::optional<Ranges::HoldId> Ranges::hold(std::span<const MemoryRange> asked, std::size_t& refused) {
    std::vector<std::uint64_t> addresses;
    for (refused = 0; refused < asked.size(); ++refused) {
        if (!find_all(asked[refused], addresses)) return std::nullopt;
    }
    return claim(std::move(addresses));
}

std::optional<Ranges::HoldId> Ranges::hold_registered(std::span<const MemoryRange> asked,
                                                      std::size_t& refused) {
    std::vector<std::uint64_t> addresses;
    for (refused = 0; refused < asked.size(); ++refused) {
        const MemoryRange& range = asked[refused];
        const std::uint64_t end = range.address + range.length;
        auto found = containing(range.address);
        if (found == ranges_.end()) found = ranges_.lower_bound(range.address);
        for (; found != ranges_.end() && found->first < end; ++found) {
            if (found->second.is_withdrawn) return std::nullopt;
            if (addresses.empty() || addresses.back() != found->first) addresses.push_back(found->first);
        }
    }
    return claim(std::move(addresses));
}

std::optional<Ranges::HoldId> Ranges::claim(std::vector<std::uint64_t> addresses) {
    std::sort(addresses.begin(), addresses.end());
    addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
    for (const std::uint64_t address : addresses) ++ranges_.at(address).holds;
    holds_.emplace(++last_hold_, std::move(addresses));
    return last_hold_;
}

void Ranges::release(HoldId hold) {
    const auto found = holds_.find(hold);
    assert(found != holds_.end());
    for (const std::uint64_t address : found->second) --ranges_.at(address).holds;
    holds_.erase(found);
}

bool Ranges::begin_withdrawal(std::uint64_t address, RangeKind kind) {
    const auto found = ranges_.find(address);
    if (found == ranges_.end() || found->second.kind != kind || found->second.is_withdrawn) return false;
    found->second.is_withdrawn = true;
    return true;
}

std::vector<Ranges::HoldId> Ranges::holders(std::uint64_t address) const {
    std::vector<HoldId> found;
    if (!is_held(address)) return found;
    for (const auto& [hold, addresses] : holds_) {
        if (std::binary_search(addresses.begin(), addresses.end(), address)) found.push_back(hold);
    }
    return found;
}

void Ranges::end_withdrawal(std::uint64_t address) {
    const auto found = ranges_.find(address);
    assert(found != ranges_.end() && found->second.is_withdrawn && found->second.holds == 0);
    addresses_by_number_.erase(found->second.number);
    ranges_.erase(found);
}

std::optional<MemoryRange> Ranges::first() const {
    for (const auto& [number, address] : addresses_by_number_) {
        const Range& range = ranges_.at(address);
        if (!range.is_withdrawn) return MemoryRange{address, range.length};
    }
    return std::nullopt;
}

void Ranges::check_invariants() const {
    std::map<std::uint64_t, std::size_t> counts;
    for (const auto& [hold, addresses] : holds_) {
        for (const std::uint64_t address : addresses) ++counts[address];
    }
    std::uint64_t end = 0;
    for (const auto& [address, range] : ranges_) {
        assert(address >= end && range.length > 0);
        end = address + range.length;
        assert(end > address);
        assert(range.holds == counts[address]);
        assert(addresses_by_number_.at(range.number) == address);
    }
    assert(addresses_by_number_.size() == ranges_.size());
}

}  // namespace mooncake::transfer
