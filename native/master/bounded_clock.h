// The master's clock: follows a monotonic clock, but never by more than a bounded step.
//
// Owns the rule that makes a stopped or starved master expire nobody: time that passed while nobody read the
// clock did not pass for leases, sessions and deadlines either. Knows neither threads nor where readings come
// from; native/master/master.cc reads CLOCK_MONOTONIC every kClockPeriodMs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace mooncake::master {

inline constexpr std::uint64_t kClockPeriodMs = 50;

class BoundedClock {
  public:
    explicit BoundedClock(std::uint64_t step_max_ms) : step_max_ms_(step_max_ms) {}

    // One thread only. Goes forward by what passed since the last reading, at most step_max_ms; the excess
    // is dropped for good. The first reading only sets the mark, and a reading that went back moves nothing.
    std::uint64_t advance(std::uint64_t reading_ms) {
        const std::uint64_t passed = started_ && reading_ms > last_ms_ ? reading_ms - last_ms_ : 0;
        dropped_ms_.fetch_add(passed - std::min(passed, step_max_ms_), std::memory_order_relaxed);
        last_ms_ = reading_ms;
        started_ = true;
        const std::uint64_t now = now_ms_.load(std::memory_order_relaxed) + std::min(passed, step_max_ms_);
        now_ms_.store(now, std::memory_order_release);
        return now;
    }

    // Any thread.
    std::uint64_t now_ms() const { return now_ms_.load(std::memory_order_acquire); }
    std::uint64_t dropped_ms() const { return dropped_ms_.load(std::memory_order_relaxed); }

  private:
    const std::uint64_t step_max_ms_;
    bool started_ = false;
    std::uint64_t last_ms_ = 0;
    std::atomic<std::uint64_t> now_ms_{1};  // so that 0 stays free for "never"
    std::atomic<std::uint64_t> dropped_ms_{0};
};

}  // namespace mooncake::master
