// The memory that may be touched, for several threads: ranges behind a lock, holds that end with their
// owner, and a withdrawal that returns when nobody can touch the memory any more.
//
// Must not know who transfers, but how to end it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "transfer/core/ranges.h"

namespace mooncake::transfer {

// Transfers that run when memory is withdrawn may finish within it; then they are cut off.
inline constexpr std::uint64_t kWithdrawalGraceMs = 1'000;
// One that is cut off lets go at once; this only turns a bug into an error that names the memory.
inline constexpr std::uint64_t kCutOffMs = 10'000;

class Registry : public std::enable_shared_from_this<Registry> {
  public:
    // While it lives its memory stays; whoever moves bytes keeps it until the last one.
    class Hold {
      public:
        Hold(std::shared_ptr<Registry> registry, Ranges::HoldId id)
            : registry_(std::move(registry)), id_(id) {}
        ~Hold() { registry_->release(id_); }
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;

      private:
        const std::shared_ptr<Registry> registry_;
        const Ranges::HoldId id_;
    };
    using HoldPtr = std::unique_ptr<Hold>;

    // kOk, or why not, as Ranges::add; kInvalidParams also where there is no memory of this process.
    wire::Status add(wire::MemoryRange range, RangeKind kind, std::string& why);

    // Of what a peer asks for: all of it is registered, or nullptr and `why`. cut_off: called at most once,
    // from any thread and without a lock, when the memory is wanted back; the hold must then end soon.
    HoldPtr hold(std::span<const wire::MemoryRange> asked, std::function<void()> cut_off, std::string& why);
    // Of this process's own side of a transfer: what of it is registered. All of it must be memory.
    HoldPtr hold_own(std::span<const wire::MemoryRange> asked, std::function<void()> cut_off,
                     std::string& why);

    // Returns when nobody touches it any more: kOk. kSegmentNotFound: no such range. kBusy: somebody did not
    // let go; it is not registered any more, but must stay as it is.
    wire::Status withdraw(std::uint64_t address, RangeKind kind, std::string& why);

    std::optional<wire::MemoryRange> first() const;
    std::size_t size() const;

  private:
    void release(Ranges::HoldId id);
    HoldPtr keep(std::optional<Ranges::HoldId> id, std::function<void()> cut_off);

    mutable std::mutex mutex_;  // guards what follows; nothing else is locked under it
    std::condition_variable released_;
    Ranges ranges_;
    std::unordered_map<Ranges::HoldId, std::function<void()>> cut_offs_;
};

// Whether all of it is mapped in this process. Says nothing of what another thread unmaps meanwhile.
bool is_mapped(wire::MemoryRange range);

}  // namespace mooncake::transfer
