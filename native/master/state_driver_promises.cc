// StateDriver's promise that nobody starts a read of what has ended: for whose word the answer to a remove or
// a commit waits, and when it must wait for all of its time.
#include <algorithm>

#include "master/state_driver_parts.h"

namespace mooncake::master {

// ---- under the lock ----

bool StateDriver::waits_for_confirmation(const Call& call) const {
    const bool waits = (call.unconfirmed > 0 && !call.command.retired().empty()) ||
                       call.remembered_until_ms != 0 || !is_kept(call);
    return waits && options_.remove_confirm_timeout_ms > 0;
}

bool StateDriver::is_kept(const Call& call) const {
    return !options_.keeps_tombstones || call.needs_kept <= kept_generation_;
}

// Somebody may remember a place of what this ended at a node that nobody can tell: one that left the pool, or
// one that has not come yet to this master, which followed another.
void StateDriver::wait_out_memory(Call& call, std::uint64_t now_ms) const {
    if (!promises_no_more_reads(call.command.verb())) return;
    if (call.command.ends_unseen()) note_memory(call, started_ms_);
    const bool ends_something =
        call.met_lost_copy || call.command.ended_lately() || !call.command.retired().empty();
    if (unheard_ms_ != 0 && ends_something) note_memory(call, unheard_ms_);
    if (call.remembered_until_ms <= now_ms) call.remembered_until_ms = 0;
}

// Since then no lookup has told of those places.
void StateDriver::note_memory(Call& call, std::uint64_t since_ms) const {
    call.remembered_until_ms = std::max(call.remembered_until_ms, since_ms + remembered_ms_);
}

void StateDriver::await_confirmation(Call* call, wire::ReplicaId replica) {
    if (call == nullptr || !promises_no_more_reads(call->command.verb())) return;
    awaited_.emplace(replica, call->shared_from_this());
    call->awaited.push_back(replica);
    ++call->unconfirmed;
}

void StateDriver::replica_confirmed(wire::ReplicaId replica, Outbox& outbox) {
    for (auto found = awaited_.find(replica); found != awaited_.end(); found = awaited_.find(replica)) {
        const CallPtr call = std::move(found->second);
        awaited_.erase(found);
        --call->unconfirmed;
        finish_if_confirmed(call, outbox);
    }
}

// Its node is out of the pool and was not told: a later master must know that, too. One that left by its own
// wish serves nothing any more.
void StateDriver::replica_lost(wire::ReplicaId replica, bool may_be_served, Outbox& outbox) {
    const auto [first, last] = awaited_.equal_range(replica);
    for (auto found = first; found != last; ++found) {
        found->second->needs_kept = metadata_.generation_due();
        if (may_be_served) note_memory(*found->second, steady_ms());
    }
    replica_confirmed(replica, outbox);
}

void StateDriver::finish_if_confirmed(const CallPtr& call, Outbox& outbox) {
    const bool is_over = call->unconfirmed == 0 && is_kept(*call) && call->remembered_until_ms <= steady_ms();
    if (is_over && call->parked_in == &confirm_waiters_) finish(call, outbox);
}

}  // namespace mooncake::master
