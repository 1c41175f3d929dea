#include "transfer/registry.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <vector>

namespace mooncake::transfer {

using wire::MemoryRange;
using wire::Status;

namespace {

std::string text_of(const MemoryRange& range) {
    char text[64];
    std::snprintf(text, sizeof text, "%llu bytes at 0x%llx", static_cast<unsigned long long>(range.length),
                  static_cast<unsigned long long>(range.address));
    return text;
}

}  // namespace

bool is_mapped(MemoryRange range) {
    if (range.length == 0) return true;
    if (range.address == 0 || range.address + range.length < range.address) return false;
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = range.address / page * page;
    // Does nothing but look (Linux 2.6.19 and newer): ENOMEM where something in between is not mapped.
    return ::msync(reinterpret_cast<void*>(begin), range.address + range.length - begin, MS_ASYNC) == 0;
}

Status Registry::add(MemoryRange range, RangeKind kind, std::string& why) {
    if (!is_mapped(range)) {
        why = text_of(range) + ": not memory of this process";
        return Status::kInvalidParams;
    }
    const std::lock_guard lock(mutex_);
    const Status status = ranges_.add(range, kind);
    if (status == Status::kInvalidParams) why = text_of(range) + " cannot be registered";
    if (status == Status::kSegmentAlreadyExists) why = text_of(range) + " overlap what is registered already";
    if (status == Status::kBusy) why = std::to_string(kRangesMax) + " ranges are registered already";
    return status;
}

Registry::HoldPtr Registry::keep(std::optional<Ranges::HoldId> id, std::function<void()> cut_off) {
    if (!id) return nullptr;
    cut_offs_.emplace(*id, std::move(cut_off));
    return std::make_unique<Hold>(shared_from_this(), *id);
}

Registry::HoldPtr Registry::hold(std::span<const MemoryRange> asked, std::function<void()> cut_off,
                                 std::string& why) {
    const std::lock_guard lock(mutex_);
    std::size_t refused = 0;
    auto hold = keep(ranges_.hold(asked, refused), std::move(cut_off));
    if (!hold) why = text_of(asked[refused]) + " are not registered";
    return hold;
}

Registry::HoldPtr Registry::hold_own(std::span<const MemoryRange> asked, std::function<void()> cut_off,
                                     std::string& why) {
    HoldPtr hold;
    std::vector<MemoryRange> foreign;
    {
        const std::lock_guard lock(mutex_);
        std::size_t refused = 0;
        hold = keep(ranges_.hold_registered(asked, refused), std::move(cut_off));
        if (!hold) {
            why = text_of(asked[refused]) + " are being unregistered";
            return nullptr;
        }
        for (const MemoryRange& range : asked) {
            if (!ranges_.covers(range)) foreign.push_back(range);
        }
    }
    for (const MemoryRange& range : foreign) {
        if (is_mapped(range)) continue;
        why = text_of(range) + ": not memory of this process";
        return nullptr;
    }
    return hold;
}

void Registry::release(Ranges::HoldId id) {
    {
        const std::lock_guard lock(mutex_);
        ranges_.release(id);
        cut_offs_.erase(id);
    }
    released_.notify_all();
}

Status Registry::withdraw(std::uint64_t address, RangeKind kind, std::string& why) {
    std::unique_lock lock(mutex_);
    if (!ranges_.begin_withdrawal(address, kind)) {
        why = "nothing is registered at address " + std::to_string(address);
        return Status::kSegmentNotFound;
    }
    const auto is_free = [&] { return !ranges_.is_held(address); };
    if (!released_.wait_for(lock, std::chrono::milliseconds(kWithdrawalGraceMs), is_free)) {
        std::vector<std::function<void()>> cut_offs;
        for (const auto id : ranges_.holders(address)) cut_offs.push_back(cut_offs_.at(id));
        lock.unlock();
        for (const auto& cut_off : cut_offs) cut_off();
        lock.lock();
        if (!released_.wait_for(lock, std::chrono::milliseconds(kCutOffMs), is_free)) {
            why = "a transfer from or to the memory at " + std::to_string(address) + " does not end";
            return Status::kBusy;
        }
    }
    ranges_.end_withdrawal(address);
    return Status::kOk;
}

std::optional<MemoryRange> Registry::first() const {
    const std::lock_guard lock(mutex_);
    return ranges_.first();
}

std::size_t Registry::size() const {
    const std::lock_guard lock(mutex_);
    return ranges_.size();
}

}  // namespace mooncake::transfer
