// What happened, in order: a hash of all of it always, and its lines when they are kept for a story.
//
// A run that fails is run again with its lines kept (simulation.cc), which its seed makes the same run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "world.h"

namespace simulation {

// An id as stories name it: reign:counter.
std::string id_text(std::uint64_t id);

class Journal {
  public:
    Journal(const World& world, bool keeps_lines) : world_(world), keeps_lines_(keeps_lines) {}

    bool keeps_lines() const { return keeps_lines_; }
    // Something happened: its bytes count, wherever it is told.
    void note(std::uint64_t what, std::span<const std::uint8_t> bytes = {});
    // A line about these keys; none = about all.
    void line(const std::string& who, const std::string& what, const std::vector<std::string>& keys = {});
    std::uint64_t hash() const { return hash_; }
    // The lines about one key (and about all), the last `lines_max`.
    std::string story(std::string_view key, std::size_t lines_max) const;

  private:
    struct Line {
        Ms at_ms;
        std::uint64_t step;
        std::string text;
        std::vector<std::string> keys;
    };
    const World& world_;
    const bool keeps_lines_;
    std::uint64_t hash_ = 0xCBF29CE484222325ULL;
    std::vector<Line> lines_;
};

}  // namespace simulation
