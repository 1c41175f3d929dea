// The state lock: the one mutex round the metadata state machine and the driver's own tables.
//
// It is held for one bounded step at a time. Who takes it again right after such a step asks is_wanted()
// first and gives way, because a mutex that is taken again at once is never seen free by a thread that sleeps
// on it. Order of locks: Link::sending, then the state lock; nothing is taken inside the state lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace mooncake::master {

class StateLock {
  public:
    void lock() {
        if (mutex_.try_lock()) return;
        waiting_.fetch_add(1, std::memory_order_relaxed);
        mutex_.lock();
        waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    void unlock() { mutex_.unlock(); }
    bool is_wanted() const { return waiting_.load(std::memory_order_relaxed) > 0; }

  private:
    std::mutex mutex_;
    std::atomic<std::uint32_t> waiting_{0};
};

}  // namespace mooncake::master
