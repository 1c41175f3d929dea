#include "metadata/metadata.h"

#include <stdexcept>

#include "metadata/machine.h"

namespace mooncake::metadata {

struct Metadata::State : Machine {
    using Machine::Machine;
};

Metadata::Metadata(const Options& options, std::uint64_t epoch, const wire::Uuid& master, std::uint64_t seed)
    : state_(std::make_unique<State>(options, epoch, master, seed)) {}
Metadata::~Metadata() = default;

bool Metadata::step(Command& command, std::uint64_t now_ms, Effects& effects) {
    return state_->step(command, now_ms, effects);
}
void Metadata::refuse_waiting(Command& command, std::uint64_t now_ms) {
    state_->refuse_waiting(command, now_ms);
}
void Metadata::session_attached(wire::SessionId session, std::uint64_t now_ms) {
    state_->session_attached(session, now_ms);
}
void Metadata::session_detached(wire::SessionId session, std::uint64_t now_ms) {
    state_->session_detached(session, now_ms);
}
void Metadata::expel(wire::SessionId session, wire::EventReason reason, std::uint64_t now_ms,
                     Effects& effects) {
    state_->expel_session(session, reason, now_ms, effects);
}
void Metadata::probed(wire::SessionId node, ProbeResult result, std::uint64_t now_ms, Effects& effects) {
    state_->probed(node, result, now_ms, effects);
}
std::string Metadata::endpoint(wire::SegmentId segment) const { return state_->endpoint(segment); }
bool Metadata::has_mounted(wire::SessionId session, const wire::Mount& mount) const {
    return state_->has_mounted(session, mount);
}
void Metadata::retire_confirmed(wire::SessionId node, std::uint64_t command_id,
                                std::span<const wire::ReplicaId> confirmed, bool is_last) {
    state_->retire_confirmed(node, command_id, confirmed, is_last);
}
void Metadata::freed(std::span<const wire::ReplicaId> freed, Effects& effects) {
    state_->freed(freed, effects);
}
std::optional<CopyOrder> Metadata::copy_order(wire::ReplicaId target) const {
    return state_->copy_order(target);
}
std::vector<wire::ReplicaId> Metadata::copies_to(wire::SessionId node) const {
    return state_->copies_to(node);
}
void Metadata::copy_answered(wire::SessionId node, wire::ReplicaId target, wire::Status status,
                             std::uint64_t now_ms, Effects& effects) {
    state_->copy_answered(node, target, status, now_ms, effects);
}
bool Metadata::tick(std::uint64_t now_ms, Effects& effects) { return state_->tick(now_ms, effects); }

void Metadata::hear_of_reign(std::uint64_t epoch, const wire::Uuid& master, std::uint64_t now_ms) {
    state_->hear_of_reign(epoch, master, now_ms);
}
std::uint64_t Metadata::deposed_by() const { return state_->deposed_by(); }
std::uint64_t Metadata::epoch() const { return state_->epoch(); }
const wire::Uuid& Metadata::master() const { return state_->master(); }
std::uint64_t Metadata::settled_id() const { return state_->settled_id(); }
std::uint64_t Metadata::tombstones_generation() const { return state_->tombstones_generation(); }
std::uint64_t Metadata::generation_due() const { return state_->generation_due(); }
const wire::Buffer& Metadata::tombstones() const { return state_->tombstones(); }
bool Metadata::restore_tombstones(wire::Bytes kept) {
    const auto parsed = wire::parse_tombstones(kept);
    if (parsed) state_->restore_tombstones(*parsed);
    return parsed.has_value();
}
std::vector<std::pair<std::string, std::uint64_t>> Metadata::stats() const { return state_->stats(); }

// Uncaught, it ends the process with its text: a wrong store is worse than a stopped one.
void Metadata::check_invariants() const {
    const std::string broken = state_->broken_invariant();
    if (!broken.empty()) throw std::logic_error("broken invariant: " + broken);
}

}  // namespace mooncake::metadata
