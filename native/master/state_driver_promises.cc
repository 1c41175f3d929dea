// StateDriver's promise that nobody starts a read of what has ended: for whose word the answer to a remove or
// a commit waits, and when it must wait for all of its time.
#include <algorithm>

#include "master/state_driver_parts.h"

namespace mooncake::master {

// ---- under the lock ----

bool StateDriver::waits_for_confirmation(const Call& call) const {
    const bool waits =
        (call.unconfirmed > 0 && !call.command.retired().empty()) || call.waits_out || !is_kept(call);
    return waits && options_.remove_confirm_timeout_ms > 0;
}

bool StateDriver::is_kept(const Call& call) const {
    return !options_.keeps_tombstones || call.needs_kept <= kept_generation_;
}

// Somebody may remember a place of what this ended at a node that nobody can tell: one that left the pool, or
// one that has not come yet to this master, which followed another.
bool StateDriver::may_be_remembered(const Call& call, std::uint64_t now_ms) const {
    if (!promises_no_more_reads(call.command.verb())) return false;
    const std::uint64_t timeout_ms = options_.remove_confirm_timeout_ms;
    const bool is_new_here = call.command.ends_unseen() && now_ms - started_ms_ < timeout_ms;
    const bool is_unheard = unheard_ms_ != 0 && now_ms - unheard_ms_ < timeout_ms;
    const bool ends_something =
        call.met_lost_copy || call.command.ended_lately() || !call.command.retired().empty();
    return is_new_here || (is_unheard && ends_something);
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
        found->second->waits_out = found->second->waits_out || may_be_served;
    }
    replica_confirmed(replica, outbox);
}

void StateDriver::finish_if_confirmed(const CallPtr& call, Outbox& outbox) {
    const bool is_over = call->unconfirmed == 0 && is_kept(*call) && !call->waits_out;
    if (is_over && call->parked_in == &confirm_waiters_) finish(call, outbox);
}

}  // namespace mooncake::master
