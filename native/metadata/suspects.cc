// What clients report of nodes, what the master finds when it looks itself, and which node is expelled before
// client_ttl for it.
//
// A client's word alone expels nobody, for its own network may be what is broken. Nor does a probe alone: a
// node whose heartbeats arrive is alive, whatever lies between it and the master's probe.
//
//   probe      control connection                        the node is expelled
//   answered   any                                       never
//   refused    closed                                    at once: its machine lives and its process is gone
//   any other  closed for session_grace_ms               after three probes in a row
//   any other  open, nothing heard for client_ttl / 2    after three probes in a row
//
// "In a row": nothing was heard of the node since the first of them failed.
#include <algorithm>

#include "metadata/machine.h"

namespace mooncake::metadata {

namespace {

wire::EventReason reason_of(wire::PeerFailure failure) {
    switch (failure) {
        case wire::PeerFailure::kRefused:
            return wire::EventReason::kRefused;
        case wire::PeerFailure::kReset:
            return wire::EventReason::kReset;
        case wire::PeerFailure::kTimedOut:
            return wire::EventReason::kTimedOut;
        default:
            return wire::EventReason::kNone;
    }
}

}  // namespace

void Machine::hear_of_peers(const wire::Heartbeat& message, Effects& effects) {
    for (std::size_t i = 0; i < message.request.avoid.count(); ++i) {
        ++counters_.unreachable_reports;
        const SegmentIndex* index = segments_.find(message.request.avoid.at(i));
        if (index == nullptr) continue;
        const Segment& segment = segments_.at(*index);
        // Of itself a node speaks by its reports.
        if (segment.owner == message.request.prefix.session) continue;
        if (suspects_.report(segment.owner, now_ms_)) {
            note_segment(wire::EventKind::kReportedUnreachable, reason_of(message.failure(i)), segment);
        }
        if (!suspects_.begin_probe(segment.owner, now_ms_)) continue;
        ++counters_.probes;
        effects.push_back({Effect::Kind::kProbe, segment.id, 0, segment.owner});
    }
}

void Machine::probed(wire::SessionId node, ProbeResult result, std::uint64_t now_ms, Effects& effects) {
    advance_clock(now_ms);
    Suspect* suspect = suspects_.find(node);
    Session* session = sessions_.find(node);
    if (suspect == nullptr || session == nullptr || !suspect->is_probing) return;
    suspects_.end_probe(*suspect);
    const bool is_reached = result == ProbeResult::kAnswered;
    if (!suspect->has_result || suspect->is_reached != is_reached) {
        note_session(is_reached ? wire::EventKind::kProbeAnswered : wire::EventKind::kProbeFailed,
                     result == ProbeResult::kRefused ? wire::EventReason::kRefused : wire::EventReason::kNone,
                     *session);
    }
    suspect->has_result = true;
    suspect->is_reached = is_reached;
    if (is_reached) {
        suspect->failures = 0;
        return;
    }
    ++counters_.probe_failures;
    if (suspect->failures == 0 || session->heard_ms > suspect->failing_since_ms) {
        suspect->failures = 0;
        suspect->failing_since_ms = suspect->probed_ms;
    }
    ++suspect->failures;
    if (!is_lost(*session, *suspect, result)) return;
    ++counters_.early_expiries;
    expel_session(node, wire::EventReason::kUnreachable, now_ms, effects);
}

bool Machine::is_lost(const Session& session, const Suspect& suspect, ProbeResult result) const {
    // A process that only stands still keeps its connection, and comes back with all it holds (UP 9).
    if (!session.was_attached || session.attached) return false;
    if (result == ProbeResult::kRefused) return true;
    return suspect.failures >= kProbeFailuresMin &&
           passed_ms(session.detached_ms) >= options_.session_grace_ms;
}

std::string Machine::endpoint(wire::SegmentId id) const {
    const SegmentIndex* index = segments_.find(id);
    if (index == nullptr || segments_.at(*index).endpoints.empty()) return {};
    return segments_.at(*index).endpoints.front();
}

}  // namespace mooncake::metadata
