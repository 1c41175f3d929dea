// How many requests of each verb were answered and how long they took, from both doors. Any thread counts;
// a reader may see a request in the count and not yet in its bucket.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "wire/frame.h"
#include "wire/status.h"

namespace mooncake::master {

// Upper edges of the latency buckets, µs; one more bucket holds what took longer. From an uncontended exists
// to a remove that waited for remove_confirm_timeout_ms.
inline constexpr std::array<std::uint64_t, 14> kLatencyEdgesUs = {
    10, 25, 50, 100, 250, 500, 1'000, 2'500, 5'000, 10'000, 50'000, 100'000, 500'000, 2'000'000};

class RequestMetrics {
  public:
    void record(wire::Verb verb, wire::Status status, std::uint64_t took_us);

    struct Histogram {
        const char* verb = nullptr;
        std::uint64_t count = 0;
        std::uint64_t refused = 0;  // whole requests whose status was not OK
        std::uint64_t sum_us = 0;
        std::array<std::uint64_t, kLatencyEdgesUs.size() + 1> buckets{};  // not cumulative
    };
    // One entry a verb that was ever answered.
    std::vector<Histogram> histograms() const;

  private:
    struct Counters {
        std::atomic<std::uint64_t> refused{0};
        std::atomic<std::uint64_t> sum_us{0};
        std::array<std::atomic<std::uint64_t>, kLatencyEdgesUs.size() + 1> buckets{};
    };
    static constexpr std::size_t kVerbs = 64;  // above every Verb
    std::array<Counters, kVerbs> verbs_;
};

}  // namespace mooncake::master
