// A small deterministic source of choices (splitmix64): the seed is injected, so that a run can be repeated.
#pragma once

#include <cstdint>

#include "wire/control.h"

namespace mooncake::metadata {

class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() { return wire::mix64(state_ += 0x9E3779B97F4A7C15ULL); }
    // Below `bound`, which is above 0 and small beside 2^64.
    std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

  private:
    std::uint64_t state_;
};

}  // namespace mooncake::metadata
