#include "audit.h"

#include <map>
#include <stdexcept>

namespace simulation {

namespace wire = mooncake::wire;
using mooncake::node::Directory;
using mooncake::node::SegmentIndex;

namespace {

constexpr Ms kHeartbeatMs = 300;

std::string text(std::uint64_t value) { return std::to_string(value); }

}  // namespace

void Audit::after_step(const Host* host) {
    for (NodeProcess& process : cluster_.nodes()) {
        if (!process.is_running) continue;
        if (!process.node->holdings()->is_fenced()) {
            process.has_served = true;
        } else if (process.has_served) {
            ++fences_;  // with each step: what was committed meanwhile is not served either
        }
        if (process.host != host) continue;
        check_node(process);
        check_charges(false);
    }
    for (const MasterProcess& process : cluster_.masters()) {
        if (process.host != host || !process.is_running) continue;
        process.master->check_invariants();
        check_charges(false);
    }
}

void Audit::check_node(NodeProcess& process) {
    process.node->holdings()->with_directory([&](Directory& directory) {
        try {
            directory.check_invariants();
        } catch (const std::logic_error& broken) {
            violated(process.host->name + ": " + broken.what());
        }
    });
    const auto status = process.node->status();
    if (status.control.expulsions_total != process.expulsions_seen) {
        give_ups_ += status.control.expulsions_total - process.expulsions_seen;
        process.expulsions_seen = status.control.expulsions_total;
        process.has_leftovers = true;
    }
    if (status.counts.used_bytes == 0) process.has_leftovers = false;
    if (status.counts.draining > process.draining)
        process.drains += status.counts.draining - process.draining;
    process.draining = status.counts.draining;
}

// A session of our own at the master, as the gRPC door's clients have one.
bool Audit::keep_session() {
    const Ms now_ms = World::current()->now_ms();
    if (reign_ != cluster_.reigns()) session_ = 0;
    reign_ = cluster_.reigns();
    if (session_ != 0 && now_ms < heartbeat_ms_ + kHeartbeatMs) return true;
    heartbeat_ms_ = now_ms;
    wire::Buffer body;
    wire::Writer writer(body);
    if (session_ != 0) {
        wire::encode_prefix({session_, 0, 0, 0}, {}, writer);
        cluster_.master().submit(wire::Verb::kHeartbeat, body,
                                 [this](wire::Status status, const wire::Buffer&) {
                                     if (!wire::ok(status)) session_ = 0;
                                 });
        if (session_ != 0) return true;
        body.clear();
    }
    wire::OpenSession open;
    open.process[0] = 0xA0;
    open.name = "audit";
    open.tenant = "default";
    wire::encode(open, writer);
    cluster_.master().submit(wire::Verb::kOpenSession, body,
                             [this](wire::Status status, const wire::Buffer& answer) {
                                 const auto reply = wire::parse_open_session_reply(answer);
                                 session_ = wire::ok(status) && reply ? reply->session : 0;
                             });
    return session_ != 0;
}

// A range in use is charged until the master has heard that it is free.
void Audit::check_charges(bool exactly) {
    if (!cluster_.has_master() || cluster_.master_host().is_stopped || !keep_session()) return;
    // A restarted master charges what its nodes have told it.
    if (!exactly && cluster_.reigns() > 1) return;
    wire::Buffer body;
    wire::Writer writer(body);
    wire::encode_segment_ids({session_, 0, 0, 0}, {}, writer);
    std::map<wire::SegmentId, std::uint64_t> charged;
    cluster_.master().submit(wire::Verb::kSegments, body,
                             [&](wire::Status status, const wire::Buffer& answer) {
                                 if (!wire::ok(status)) return;
                                 const auto infos = wire::parse_segments_reply(answer);
                                 if (!infos) violated("the answer to segments does not parse");
                                 for (const auto& info : *infos) charged[info.segment] = info.charged_bytes;
                             });
    for (NodeProcess& process : cluster_.nodes()) {
        if (!process.is_running || process.has_leftovers) continue;
        std::uint64_t charged_here = 0;
        bool is_known = true;
        const auto used = process.node->holdings()->with_directory([&](Directory& directory) {
            for (std::size_t i = 0; i < directory.segment_count(); ++i) {
                const auto found = charged.find(directory.segment_id(static_cast<SegmentIndex>(i)));
                is_known &= found != charged.end();
                if (is_known) charged_here += found->second;
            }
            return directory.counts().used_bytes;
        });
        if (exactly && !is_known) {
            const auto status = process.node->status().control;
            violated(process.host->name + " is not mounted although all faults are over (in epoch " +
                     text(status.epoch) + ", last error: " + status.last_error + ")");
        }
        if (is_known && (exactly ? used != charged_here : used > charged_here)) {
            violated(process.host->name + " holds " + text(used) + " bytes, of which the master charges " +
                     text(charged_here) + "; it counts " + text(master_count("retiring_replica_count")) +
                     " replicas that retire, " + text(master_count("retire_queue_count")) + " to be told, " +
                     text(master_count("unfinished_put_count")) + " puts, " +
                     text(master_count("copy_count")) + " copies");
        }
    }
}

std::uint64_t Audit::master_count(const std::string& name) {
    for (const auto& [each, value] : cluster_.master().stats()) {
        if (each == name) return value;
    }
    violated("the master counts no " + name);
}

void Audit::add_counts(Losses& losses) {
    for (const auto& [name, value] : cluster_.master().stats()) {
        if (name == "evicted_keys_total") losses.evicted += value;
        if (name == "lost_keys_total") losses.lost += value;
        if (name == "segments_expelled_total") losses.expelled += value;
        if (name == "refused_replicas_total") losses.refused += value;
    }
}

void Audit::reign_ends() { add_counts(past_); }

Losses Audit::losses() {
    Losses losses = past_;
    // Without a master nobody counts: as if the next one reigned already.
    losses.reigns = cluster_.reigns() + (cluster_.has_master() ? 0 : 1);
    for (const auto& process : cluster_.masters()) losses.stops += process.host->stops;
    losses.takeovers = cluster_.takeovers();
    losses.fences = fences_;
    losses.give_ups = give_ups_;
    losses.crashes = cluster_.node_crashes() + cluster_.lost_records();
    if (cluster_.has_master()) add_counts(losses);
    return losses;
}

wire::Absence Audit::why(const std::string& key) {
    if (!cluster_.has_master() || !keep_session()) return wire::Absence::kRebuilding;
    wire::Buffer body;
    wire::Writer writer(body);
    const std::string_view name = key;
    wire::encode_keys_request({session_, 0, 0, 0}, {}, {&name, 1}, writer);
    auto reason = wire::Absence::kRebuilding;
    cluster_.master().submit(wire::Verb::kWhy, body, [&](wire::Status status, const wire::Buffer& answer) {
        const auto reply = wire::parse_why_reply(answer);
        if (wire::ok(status) && reply && reply->size() == 1) reason = reply->front().reason;
    });
    return reason;
}

void Audit::check_no_unfinished_put() {
    if (const auto count = master_count("unfinished_put_count"); count > 0) {
        violated(text(count) + " puts neither ended nor were revoked or expired");
    }
}

void Audit::check_empty() {
    for (const char* name : {"key_count", "unfinished_put_count", "allocated_bytes", "dram_retiring_bytes",
                             "retiring_replica_count", "retire_queue_count", "parked_calls_count"}) {
        if (const auto value = master_count(name); value > 0) {
            violated("everything was removed, but " + std::string(name) + " is " + text(value));
        }
    }
    for (NodeProcess& process : cluster_.nodes()) {
        const auto counts = process.node->status().counts;
        if (counts.used_bytes + counts.references + counts.replicas + counts.receiving > 0) {
            violated("everything was removed, but " + process.host->name + " holds " + text(counts.replicas) +
                     " replicas of " + text(counts.used_bytes) + " bytes with " + text(counts.references) +
                     " references");
        }
    }
}

}  // namespace simulation
