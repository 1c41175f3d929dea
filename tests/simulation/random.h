// The one source of chance of a simulated world: everything that happens follows from its seed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simulation {

class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t value = (state_ += 0x9E3779B97F4A7C15ULL);
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
        value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
        return value ^ (value >> 31);
    }
    // 0 .. count - 1; count > 0.
    std::uint64_t below(std::uint64_t count) { return next() % count; }
    std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
    bool chance(std::uint64_t in_10000) { return below(10'000) < in_10000; }
    template <class Container>
    const auto& pick(const Container& of) {
        return of[static_cast<std::size_t>(below(of.size()))];
    }

  private:
    std::uint64_t state_;
};

}  // namespace simulation
