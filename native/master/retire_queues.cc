#include "master/retire_queues.h"

#include <algorithm>

namespace mooncake::master {

void RetireQueues::mounted(wire::SegmentId segment, wire::SessionId owner) {
    auto& entry = segments_[segment];
    if (entry.owner == owner) return;
    if (entry.owner != 0) std::erase(nodes_[entry.owner].segments, segment);
    entry.owner = owner;
    auto [node, is_new] = nodes_.try_emplace(owner);
    if (is_new) node->second.next_command_id = highest_command_id_ + 1;
    node->second.segments.push_back(segment);
}

std::vector<wire::ReplicaId> RetireQueues::expelled(wire::SegmentId segment) {
    const auto found = segments_.find(segment);
    if (found == segments_.end()) return {};
    std::vector<wire::ReplicaId> dropped(found->second.pending.begin(), found->second.pending.end());
    Node& node = nodes_[found->second.owner];
    segments_.erase(found);
    std::erase(node.segments, segment);
    for (auto& sent : node.in_flight) {
        std::size_t at = 0;
        for (auto run = sent.runs.begin(); run != sent.runs.end();) {
            if (run->segment != segment) {
                at += run->count;
                ++run;
                continue;
            }
            const auto first = sent.command.replicas.begin() + static_cast<std::ptrdiff_t>(at);
            const auto last = first + static_cast<std::ptrdiff_t>(run->count);
            dropped.insert(dropped.end(), first, last);
            sent.command.replicas.erase(first, last);
            run = sent.runs.erase(run);
        }
    }
    length_ -= dropped.size();
    return dropped;
}

std::vector<wire::ReplicaId> RetireQueues::session_ended(wire::SessionId owner) {
    std::vector<wire::ReplicaId> dropped;
    const auto node = nodes_.find(owner);
    if (node == nodes_.end()) return dropped;
    while (!node->second.segments.empty()) {
        const auto more = expelled(node->second.segments.back());
        dropped.insert(dropped.end(), more.begin(), more.end());
    }
    nodes_.erase(node);
    return dropped;
}

bool RetireQueues::retire(wire::SegmentId segment, wire::ReplicaId replica) {
    const auto found = segments_.find(segment);
    if (found == segments_.end()) return false;
    found->second.pending.push_back(replica);
    ++length_;
    return true;
}

wire::SessionId RetireQueues::owner(wire::SegmentId segment) const {
    const auto found = segments_.find(segment);
    return found == segments_.end() ? 0 : found->second.owner;
}

void RetireQueues::reconnected(wire::SessionId owner) {
    const auto node = nodes_.find(owner);
    if (node == nodes_.end()) return;
    for (const auto& sent : node->second.in_flight) {
        auto id = sent.command.replicas.begin();
        for (const auto& run : sent.runs) {
            auto& pending = segments_[run.segment].pending;
            pending.insert(pending.end(), id, id + static_cast<std::ptrdiff_t>(run.count));
            id += static_cast<std::ptrdiff_t>(run.count);
        }
    }
    node->second.in_flight.clear();
}

void RetireQueues::take_pending(wire::SegmentId id, InFlight& into) {
    auto& pending = segments_[id].pending;
    auto& replicas = into.command.replicas;
    const std::size_t count = std::min(pending.size(), kCommandIdsMax - replicas.size());
    if (count == 0) return;
    const auto end = pending.begin() + static_cast<std::ptrdiff_t>(count);
    replicas.insert(replicas.end(), pending.begin(), end);
    pending.erase(pending.begin(), end);
    into.runs.push_back({id, count});
}

std::optional<RetireQueues::Command> RetireQueues::next_command(wire::SessionId owner, std::uint64_t now_ms) {
    const auto found = nodes_.find(owner);
    if (found == nodes_.end()) return std::nullopt;
    Node& node = found->second;
    if (node.in_flight.size() >= kCommandsInFlightMax) return std::nullopt;
    InFlight next;
    next.sent_ms = now_ms;
    for (std::size_t i = 0; i < node.segments.size(); ++i) {
        take_pending(node.segments[(node.turn + i) % node.segments.size()], next);
    }
    if (next.command.replicas.empty()) return std::nullopt;
    ++node.turn;
    ++commands_total_;
    next.command.id = node.next_command_id++;
    highest_command_id_ = std::max(highest_command_id_, next.command.id);
    node.in_flight.push_back(next);
    return std::move(next.command);
}

std::optional<std::vector<wire::ReplicaId>> RetireQueues::confirmed(wire::SessionId owner,
                                                                    std::uint64_t command_id) {
    const auto found = nodes_.find(owner);
    if (found == nodes_.end()) return std::nullopt;
    auto& in_flight = found->second.in_flight;
    const auto sent = std::find_if(in_flight.begin(), in_flight.end(),
                                   [&](const InFlight& each) { return each.command.id == command_id; });
    if (sent == in_flight.end()) return std::nullopt;
    std::vector<wire::ReplicaId> replicas = std::move(sent->command.replicas);
    in_flight.erase(sent);
    length_ -= replicas.size();
    return replicas;
}

std::optional<std::uint64_t> RetireQueues::oldest_sent_ms(wire::SessionId owner) const {
    const auto found = nodes_.find(owner);
    if (found == nodes_.end() || found->second.in_flight.empty()) return std::nullopt;
    return found->second.in_flight.front().sent_ms;
}

std::vector<wire::SessionId> RetireQueues::owners() const {
    std::vector<wire::SessionId> owners;
    owners.reserve(nodes_.size());
    for (const auto& [owner, node] : nodes_) owners.push_back(owner);
    return owners;
}

}  // namespace mooncake::master
