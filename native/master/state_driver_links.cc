// StateDriver's connections: which of them speaks for which session, and the commands that nodes are told on
// theirs.
#include <algorithm>

#include "master/state_driver_parts.h"

namespace mooncake::master {

namespace {

constexpr std::uint64_t kStallCheckPeriodMs = 1'000;

}  // namespace

using wire::Verb;

// ---- under the lock ----

// False: this connection carries as many sessions as it may.
bool StateDriver::attach(const LinkPtr& link, wire::SessionId session, Outbox& outbox) {
    auto& sessions = link->sessions;
    if (link->is_closed || std::find(sessions.begin(), sessions.end(), session) != sessions.end())
        return true;
    if (sessions.size() >= options_.sessions_a_link_max) return false;
    sessions.push_back(session);
    links_of_[session].push_back(link);
    metadata_.session_attached(session, clock_.now_ms());
    if (link->role == wire::Role::kNode) {
        queues_.reconnected(session);
        want_commands(session, outbox);
        for (const auto target : metadata_.copies_to(session)) want_copy(target, session, outbox);
    }
    return true;
}

void StateDriver::detach(const LinkPtr& link, wire::SessionId session) {
    std::erase(link->sessions, session);
    const auto found = links_of_.find(session);
    if (found == links_of_.end()) return;
    std::erase(found->second, link);
    if (found->second.empty()) links_of_.erase(found);
}

void StateDriver::session_ended(wire::SessionId session, Outbox& outbox) {
    for (const auto replica : queues_.session_ended(session)) replica_lost(replica, true, outbox);
    const auto found = links_of_.find(session);
    if (found == links_of_.end()) return;
    for (const auto& link : found->second) std::erase(link->sessions, session);
    links_of_.erase(found);
}

// The connection that carries this node's commands: the newest one on which its session spoke.
const LinkPtr* StateDriver::node_link(wire::SessionId session) const {
    const auto found = links_of_.find(session);
    if (found == links_of_.end()) return nullptr;
    const auto link = std::find_if(found->second.rbegin(), found->second.rend(),
                                   [](const LinkPtr& each) { return each->role == wire::Role::kNode; });
    return link == found->second.rend() ? nullptr : &*link;
}

void StateDriver::want_commands(wire::SessionId session, Outbox& outbox) {
    const LinkPtr* link = node_link(session);
    if (link == nullptr) return;
    if (std::find(outbox.links.begin(), outbox.links.end(), *link) == outbox.links.end()) {
        outbox.links.push_back(*link);
    }
}

// Not queued: few are under way at once, one that is lost with its connection is told again on the next, and
// one that nobody carries out ends by its deadline.
void StateDriver::want_copy(wire::ReplicaId target, wire::SessionId session, Outbox& outbox) {
    const LinkPtr* link = node_link(session);
    const auto order = metadata_.copy_order(target);
    if (link == nullptr || !order) return;
    wire::Copy copy;
    copy.target = order->target;
    copy.segment = order->segment;
    copy.source = order->source;
    copy.digest = order->digest;
    copy.put_id = order->put_id;
    copy.size = order->size;
    copy.timeout_ms = order->timeout_ms;
    copy.endpoints.assign(order->endpoints.begin(), order->endpoints.end());
    wire::FrameHeader header;
    header.verb = Verb::kCopy;
    header.request_id = target;
    header.epoch = metadata_.epoch();
    wire::Buffer frame;
    const std::size_t start = wire::begin_frame(frame, header);
    wire::Writer writer(frame);
    wire::encode(copy, writer);
    wire::finish_frame(frame, start);
    outbox.copies.emplace_back(*link, std::move(frame));
}

// A node that reports and leaves a retire unanswered: what it was told to end must not be readable for longer
// than from one that nobody reaches.
void StateDriver::expel_stalled_nodes(std::uint64_t now_ms, Outbox& outbox) {
    if (now_ms < next_stall_check_ms_) return;
    next_stall_check_ms_ = now_ms + kStallCheckPeriodMs;
    for (const auto owner : queues_.owners()) {
        const auto sent_ms = queues_.oldest_sent_ms(owner);
        if (!sent_ms || now_ms - *sent_ms < command_timeout_ms_) continue;
        const LinkPtr* link = node_link(owner);
        if (link == nullptr) continue;
        ++stalled_links_total_;
        outbox.stalled.push_back(*link);
        metadata_.expel(owner, wire::EventReason::kStalled, now_ms, effects_);
    }
    absorb(nullptr, outbox);
}

// ---- without it ----

void StateDriver::send_commands(Outbox& outbox) {
    for (const auto& link : std::exchange(outbox.links, {})) send_commands_to(link);
    for (auto& [link, frame] : std::exchange(outbox.copies, {})) link->send(std::move(frame));
}

void StateDriver::send_commands_to(const LinkPtr& link) {
    const std::lock_guard order(link->sending);
    for (;;) {
        std::optional<RetireQueues::Command> command;
        {
            const std::lock_guard guard(lock_);
            for (const auto session : link->sessions) {
                const LinkPtr* current = node_link(session);
                if (current == nullptr || *current != link) continue;
                command = queues_.next_command(session, clock_.now_ms());
                if (command) break;
            }
        }
        if (!command) return;
        wire::FrameHeader header;
        header.verb = Verb::kRetire;
        header.request_id = command->id;
        header.epoch = epoch();
        wire::Buffer frame;
        const std::size_t start = wire::begin_frame(frame, header);
        wire::Writer writer(frame);
        wire::encode_retire(command->id, command->replicas, writer);
        wire::finish_frame(frame, start);
        link->send(std::move(frame));
    }
}

}  // namespace mooncake::master
