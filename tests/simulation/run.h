// One seed: a world, a cluster in it, what befalls it and what must hold all the while and at the end.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "plan.h"
#include "weather.h"
#include "workload.h"

namespace simulation {

struct Totals {
    std::uint64_t seeds = 0;
    std::uint64_t steps = 0;
    std::uint64_t world_ms = 0;
    std::uint64_t misses_judged = 0;
    std::array<std::uint64_t, kMixNames.size()> mixes{};  // seeds of each
    FaultCounts faults;
    CallCounts calls;
    std::map<std::string, std::uint64_t> master;  // its counters, by name
    std::map<std::string, std::uint64_t> nodes;
    std::map<std::string, std::uint64_t> answers;  // of the master, by verb and status
};

// The hash of all that happened: equal seeds give equal hashes. Ends the process when something does not
// hold.
std::uint64_t run_seed(std::uint64_t seed, std::uint64_t calls_max, bool keeps_lines, Totals& totals);

// For who ends the process: what was run, what befell it, and the story of a key (empty = of all).
std::string describe_run(const std::string& key);

}  // namespace simulation
