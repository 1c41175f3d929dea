// What a node holds, shared by its data server and its control connection: the memory, the directory under
// its lock, and whether a master has been heard of late.
//
// Lock order: the directory lock is a leaf; nothing is sent, copied or waited for under it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "net/event_loop.h"
#include "node/core/directory.h"
#include "node/memory.h"

namespace mooncake::node {

class Holdings {
  public:
    explicit Holdings(std::vector<std::unique_ptr<MemorySegment>> segments) : segments_(std::move(segments)) {
        for (const auto& segment : segments_) directory_.add_segment(segment->bytes());
    }

    std::uint8_t* at(SegmentIndex segment, std::uint64_t offset) const {
        return segments_[segment]->data() + offset;
    }
    std::size_t segment_count() const { return segments_.size(); }
    const MemorySegment& segment(std::size_t index) const { return *segments_[index]; }

    // Runs use(directory) under the lock, fenced if it must be. Bounded work only: readers wait meanwhile.
    template <class Use>
    auto with_directory(Use&& use) {
        const bool fenced = is_fenced();
        std::unique_lock lock(directory_mutex_);
        directory_.set_fenced(fenced);
        directory_.set_now(net::boottime_ms());
        const Notice notice{*this, lock, directory_.pending_freed_count()};
        return std::forward<Use>(use)(directory_);
    }

    // Called, from any thread and without the lock, when ranges became free that the master waits for.
    void on_freed(std::function<void()> told) {
        const std::lock_guard lock(told_mutex_);
        told_ = std::move(told);
    }

    // A master answered what was asked at asked_ms (boottime_ms): it counts this node alive until
    // asked_ms + client_ttl_ms at least. Time asleep counts, as it does for the master.
    void heard_master(std::uint64_t asked_ms, std::uint64_t client_ttl_ms) {
        client_ttl_ms_ = client_ttl_ms;
        heard_ms_ = asked_ms;
    }
    std::uint64_t heard_ms() const { return heard_ms_; }  // 0: never
    bool is_fenced() const {
        const std::uint64_t heard = heard_ms_;
        const std::uint64_t now = net::boottime_ms();
        return heard == 0 || (now > heard && now - heard >= client_ttl_ms_);
    }

  private:
    // Unlocks, then tells if something was freed under the lock.
    struct Notice {
        Holdings& holdings;
        std::unique_lock<std::mutex>& lock;
        std::size_t before;
        ~Notice() {
            const bool rose = holdings.directory_.pending_freed_count() > before;
            lock.unlock();
            if (!rose) return;
            const std::lock_guard told_lock(holdings.told_mutex_);
            if (holdings.told_) holdings.told_();
        }
    };

    std::vector<std::unique_ptr<MemorySegment>> segments_;
    std::mutex directory_mutex_;  // "the directory lock": guards directory_
    Directory directory_;
    std::atomic<std::uint64_t> heard_ms_ = 0;
    std::atomic<std::uint64_t> client_ttl_ms_ = 10'000;
    std::mutex told_mutex_;  // guards told_; never taken under the directory lock
    std::function<void()> told_;
};

}  // namespace mooncake::node
