// Sessions: open, heartbeat, report, close, and what the driver sees of their connections.
#include <algorithm>
#include <iterator>

#include "metadata/machine.h"

namespace mooncake::metadata {

namespace {

// One that comes late must not be the last: a time to live that is near the interval would end live sessions.
std::uint32_t heartbeat_interval_ms(const Options& options) {
    constexpr std::uint64_t kHeartbeatsATtl = 4;
    const std::uint64_t most = std::max<std::uint64_t>(options.client_ttl_ms / kHeartbeatsATtl, 1);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(options.heartbeat_interval_ms, most));
}

}  // namespace

bool Machine::open_session(State& command) {
    const auto& request = std::get<wire::OpenSession>(command.message);
    Session* session = sessions_.find_process(request.process, request.tenant);
    if (session == nullptr) {
        if (sessions_.count() >= options_.sessions_max) {
            command.finish(wire::Status::kBusy, "all " + std::to_string(options_.sessions_max) +
                                                    " sessions (sessions_max) are open");
            return true;
        }
        session = &sessions_.open(next_id(), request.process, request.name, request.host_id, request.tenant);
        await({later(options_.client_ttl_ms), session->id, 0, Deadline::Kind::kSession});
        ++counters_.sessions_opened;
        note_session(wire::EventKind::kSessionOpened, wire::EventReason::kNone, *session);
    }
    session->heard_ms = now_ms_;
    command.prefix.session = session->id;
    const wire::OpenSessionReply reply{session->id,
                                       epoch_,
                                       master_,
                                       static_cast<std::uint32_t>(options_.client_ttl_ms),
                                       heartbeat_interval_ms(options_),
                                       static_cast<std::uint32_t>(options_.lease_ttl_ms),
                                       static_cast<std::uint32_t>(options_.exists_hold_ms)};
    wire::Writer writer(command.body);
    encode(reply, writer);
    command.finish(wire::Status::kOk);
    return true;
}

bool Machine::heartbeat(State& command, Effects& effects) {
    sessions_.find(command.prefix.session)->heard_ms = now_ms_;
    hear_of_peers(std::get<wire::Heartbeat>(command.message), effects);
    command.finish(wire::Status::kOk);
    return true;
}

// A node's heartbeat: how its segments are, and what it has freed.
bool Machine::report(State& command, Effects& effects) {
    const auto& request = std::get<wire::Report>(command.message);
    Session& session = *sessions_.find(command.prefix.session);
    session.heard_ms = now_ms_;
    std::vector<wire::SegmentId> unknown;
    for (const auto& reported : request.segments) {
        const SegmentIndex* index = segments_.find(reported.segment);
        if (index == nullptr || segments_.at(*index).owner != command.prefix.session) {
            unknown.push_back(reported.segment);
        } else {
            segments_.at(*index).report = reported;
        }
    }
    // A node speaks for its own segments only.
    std::vector<wire::ReplicaId> own;
    std::copy_if(request.freed.begin(), request.freed.end(), std::back_inserter(own), [&](auto replica) {
        const Retiring::Entry* entry = retiring_.find(replica);
        return entry != nullptr && segments_.at(entry->segment).owner == command.prefix.session;
    });
    freed(own, effects);
    compare_totals(session, request);
    wire::ReportReply reply;
    reply.settled_id = session.told_settled_id;
    reply.tombstones_generation = told_generation_;
    if (comparison_.awaits_list_of(session.id)) {
        reply.comparison = comparison_.number;
        reply.compared_segment = comparison_.segment;
    }
    reply.unknown_segments = std::move(unknown);
    wire::Writer writer(command.body);
    wire::encode_report_reply(reply, writer);
    command.finish(wire::Status::kOk);
    return true;
}

bool Machine::close_session(State& command, Effects& effects) {
    if (Session* session = sessions_.find(command.prefix.session)) {
        start_ending(*session, wire::EventReason::kAsked, effects);
    }
    std::size_t budget = options_.keys_a_step_max;
    Session* session = sessions_.find_ending(command.prefix.session);
    // Where nothing is left, tick was faster.
    if (session != nullptr && !end_session(*session, budget, effects)) return false;
    command.finish(wire::Status::kOk);
    return true;
}

// From here on no request finds the session, and its segments are out of the pool.
void Machine::start_ending(Session& session, wire::EventReason reason, Effects& effects) {
    note_session(wire::EventKind::kSessionEnded, reason, session);
    suspects_.forget(session.id);
    sessions_.begin_end(session);
    effects.push_back({Effect::Kind::kEndSession, 0, 0, session.id});
    std::vector<SegmentIndex> owned;
    for (const auto index : segments_.mounted()) {
        if (segments_.at(index).owner == session.id) owned.push_back(index);
    }
    for (const auto index : owned) expel(index, reason, effects);
}

void Machine::expel_session(wire::SessionId id, wire::EventReason reason, std::uint64_t now_ms,
                            Effects& effects) {
    advance_clock(now_ms);
    Session* session = sessions_.find(id);
    if (session == nullptr) return;
    ++counters_.sessions_expired;
    start_ending(*session, reason, effects);
}

// Takes down what an ending session left, in steps. True: the session is no more.
bool Machine::end_session(Session& session, std::size_t& budget, Effects& effects) {
    revoke_puts_of(session, budget, effects);
    if (session.put_head != 0) return false;
    sessions_.erase(session.id);
    return true;
}

void Machine::revoke_puts_of(Session& session, std::size_t& budget, Effects& effects) {
    while (session.put_head != 0 && budget > 0) {
        --budget;
        ++counters_.puts_orphaned;
        drop_put(session.put_head, ReplicaEvent::kRevoked, effects, nullptr);
    }
}

void Machine::session_attached(wire::SessionId id, std::uint64_t now_ms) {
    advance_clock(now_ms);
    if (Session* session = sessions_.find(id)) session->attached = session->was_attached = true;
}

void Machine::session_detached(wire::SessionId id, std::uint64_t now_ms) {
    advance_clock(now_ms);
    Session* session = sessions_.find(id);
    if (session == nullptr || !session->attached) return;
    session->attached = false;
    session->detached_ms = now_ms_;
    note_session(wire::EventKind::kConnectionLost, wire::EventReason::kNone, *session);
    await({later(options_.session_grace_ms), id, 0, Deadline::Kind::kGrace});
}

}  // namespace mooncake::metadata
