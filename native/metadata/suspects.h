// Nodes that clients report they cannot reach: when the master looks itself, and what is known of each. Owns
// the bounds on looking; who is expelled is decided in suspects.cc by what else the master knows of the node.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "wire/ids.h"

namespace mooncake::metadata {

inline constexpr std::uint64_t kProbePauseMs = 1'000;  // between two probes of one node, at least
inline constexpr std::size_t kProbesMax = 16;  // under way at once; a report beyond it waits for the next
inline constexpr std::uint64_t kProbeLostMs = 5'000;   // a probe that nobody ended by then is forgotten
inline constexpr std::uint64_t kSuspicionMs = 10'000;  // without a report: nobody suspects it any more
// Probes in a row, nothing heard of the node in between, that count where none of them was refused.
inline constexpr std::uint32_t kProbeFailuresMin = 3;

// What the master found when it dialled a node's data endpoint.
enum class ProbeResult : std::uint8_t {
    kAnswered,  // somebody there speaks: hello was answered, be it by a refusal
    kRefused,   // its machine says that nobody listens there
    kFailed     // no answer in time, or none that could be understood
};

struct Suspect {
    std::uint64_t reported_ms = 0;  // the last time
    std::uint64_t probed_ms = 0;    // when the last probe began
    bool is_probing = false;
    bool has_result = false;
    bool is_reached = false;     // by the last probe
    std::uint32_t failures = 0;  // in a row
    std::uint64_t failing_since_ms = 0;
};

// By the node's session; at most one for each that has segments.
class Suspects {
  public:
    Suspect* find(wire::SessionId node) {
        const auto found = by_node_.find(node);
        return found == by_node_.end() ? nullptr : &found->second;
    }
    bool is_suspected(wire::SessionId node, std::uint64_t now_ms) const {
        const auto found = by_node_.find(node);
        return found != by_node_.end() && now_ms - found->second.reported_ms < kSuspicionMs;
    }
    // True: nobody had reported it lately.
    bool report(wire::SessionId node, std::uint64_t now_ms) {
        Suspect& suspect = by_node_[node];
        const bool is_new = suspect.reported_ms == 0 || now_ms - suspect.reported_ms >= kSuspicionMs;
        if (is_new) {
            suspect.has_result = false;
            suspect.failures = 0;
        }
        suspect.reported_ms = now_ms;
        return is_new;
    }
    // True: one is to begin now, and counts as under way until ended().
    bool begin_probe(wire::SessionId node, std::uint64_t now_ms) {
        Suspect& suspect = by_node_[node];
        if (suspect.is_probing && now_ms - suspect.probed_ms >= kProbeLostMs) end_probe(suspect);
        const bool is_early = suspect.probed_ms != 0 && now_ms - suspect.probed_ms < kProbePauseMs;
        if (suspect.is_probing || is_early || probing_ >= kProbesMax) return false;
        suspect.is_probing = true;
        suspect.probed_ms = now_ms;
        ++probing_;
        return true;
    }
    void end_probe(Suspect& suspect) {
        if (suspect.is_probing) --probing_;
        suspect.is_probing = false;
    }
    void forget(wire::SessionId node) {
        if (Suspect* suspect = find(node)) end_probe(*suspect);
        by_node_.erase(node);
    }
    std::size_t size() const { return by_node_.size(); }

  private:
    std::unordered_map<wire::SessionId, Suspect> by_node_;
    std::size_t probing_ = 0;
};

}  // namespace mooncake::metadata
