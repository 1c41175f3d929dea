// A trace of requests driven through the real state machine with a clock of its own: what a pool of so many
// blocks would have answered.
//
// A request is what an engine does for one prompt: it asks for its blocks in order (one lookup), gives the
// leases back, and puts those that were missing. There is one client and one node, which writes all it is
// granted and frees at once what it is told to retire. Pure, as the state machine is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "metadata/metadata.h"

namespace mooncake::replay {

struct Score {
    std::uint64_t requests = 0;
    std::uint64_t accesses = 0;     // blocks asked for
    std::uint64_t hits = 0;         // of them, that were there
    std::uint64_t prefix_hits = 0;  // of these, that had all blocks of their request before them there
};

// Longer pauses of a trace count as one of this length: by then every lease and hold has ended, as it has
// after a longer one, and a request stays a bounded number of steps.
inline constexpr std::uint64_t kPauseMaxMs = 60'000;

class Replay {
  public:
    // A pool that holds exactly `capacity_blocks` values of `block_bytes`: it evicts when it is full, not at
    // a watermark, so that capacities of runs and bounds mean the same.
    Replay(metadata::Options options, std::uint64_t capacity_blocks, std::uint64_t block_bytes);

    // `at_ms` as the trace has it; an earlier time than before counts as the same. No block twice.
    void request(std::span<const std::uint32_t> blocks, std::uint64_t at_ms);

    const Score& score() const { return score_; }
    std::vector<std::pair<std::string, std::uint64_t>> stats() const { return machine_.stats(); }
    void check_invariants() const { machine_.check_invariants(); }

  private:
    wire::Buffer ask(wire::Verb verb, wire::Bytes body);
    wire::SessionId open_session(std::uint8_t number, const char* name);
    void heartbeat(wire::SessionId session);
    void advance(std::uint64_t at_ms);
    // The node's part: what is to go has gone.
    void carry_out();
    void read(std::span<const std::string_view> keys);
    void put(std::span<const std::string_view> keys, std::span<const std::uint64_t> parents);
    wire::Prefix prefix(wire::SessionId session, bool mutates);

    metadata::Metadata machine_;
    metadata::Effects effects_;
    std::uint64_t block_bytes_;
    std::uint64_t now_ms_ = 1;
    std::uint64_t trace_ms_ = 0;
    bool has_begun_ = false;
    wire::SessionId client_ = 0;
    wire::SessionId node_ = 0;
    std::uint64_t sequence_ = 0;
    std::uint64_t retires_ = 0;
    Score score_;
    std::vector<char> hit_;  // of the request under way
    wire::Buffer body_;
};

}  // namespace mooncake::replay
