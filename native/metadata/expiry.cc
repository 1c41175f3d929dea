// What time brings, in bounded steps: deadlines of sessions, TTLs and pins, reaped puts, what expelled
// segments left behind, eviction at the watermark.
#include <algorithm>

#include "metadata/machine.h"

namespace mooncake::metadata {

bool Machine::tick(std::uint64_t now_ms, Effects& effects) {
    advance_clock(now_ms);
    std::size_t budget = options_.keys_a_step_max;
    meet_deadlines(budget, effects);
    end_sessions(budget, effects);
    reap_puts(budget, effects);
    forget_no_ranges();
    bool idle = sweep_dead(budget, effects);
    if (idle && !is_rebuilding() && !is_rebuild_over_) {
        is_search_due_ = is_search_due_ || epoch_ > 1;  // for what no node came back with
        end_rebuild();
    }
    if (now_ms_ >= tell_tombstones_ms_) tell_tombstones();
    idle = sweep_expelled(budget, effects) && idle;
    idle = go_on_comparing(budget, effects) && idle;
    expire_copies(effects);
    idle = search_leaving(budget) && idle;
    idle = search_needy(budget, effects) && idle;
    idle = go_on_copying(effects) && idle;
    expire_promises();
    is_round_stuck_ = false;
    idle = evict_at_watermark(true, effects) && idle;
    std::size_t compact_budget = kExaminedAKey * options_.keys_a_step_max;
    compact_orders(compact_budget);
    return idle && budget > 0;
}

void Machine::await(const Deadline& deadline) {
    // What was given up before its time stays in the heap until then, or until it is most of it.
    const std::size_t current = 2 * sessions_.count() + ttl_count_ + soft_pinned_count_;
    if (deadlines_.size() > 2 * current + 1024) {
        std::erase_if(deadlines_, [&](const Deadline& other) { return !is_current(other); });
        std::make_heap(deadlines_.begin(), deadlines_.end());
    }
    deadlines_.push_back(deadline);
    std::push_heap(deadlines_.begin(), deadlines_.end());
}

bool Machine::is_current(const Deadline& deadline) const {
    switch (deadline.kind) {
        case Deadline::Kind::kSession:
            return sessions_.find(deadline.id) != nullptr;
        case Deadline::Kind::kGrace: {
            const Session* session = sessions_.find(deadline.id);
            return session != nullptr && !session->attached &&
                   session->detached_ms + options_.session_grace_ms == deadline.at_ms;
        }
        case Deadline::Kind::kTtl:
            return table_.object(deadline.ref).put_id == deadline.id;
        case Deadline::Kind::kSoftPin: {
            const Object& object = table_.object(deadline.ref);
            return object.put_id == deadline.id && object.has(kSoftPin);
        }
    }
    return false;
}

void Machine::meet_deadlines(std::size_t& budget, Effects& effects) {
    while (budget > 0 && !deadlines_.empty() && deadlines_.front().at_ms <= now_ms_) {
        --budget;
        std::pop_heap(deadlines_.begin(), deadlines_.end());
        const Deadline deadline = deadlines_.back();
        deadlines_.pop_back();
        if (is_current(deadline)) meet(deadline, budget, effects);
    }
}

void Machine::meet(const Deadline& deadline, std::size_t& budget, Effects& effects) {
    switch (deadline.kind) {
        case Deadline::Kind::kSession: {
            Session& session = *sessions_.find(deadline.id);
            const std::uint64_t due = session.heard_ms + options_.client_ttl_ms;
            if (due > now_ms_) {
                await({due, session.id, 0, Deadline::Kind::kSession});
                return;
            }
            ++counters_.sessions_expired;
            start_ending(session, wire::EventReason::kSilent, effects);
            return;
        }
        case Deadline::Kind::kGrace: {
            Session& session = *sessions_.find(deadline.id);
            revoke_puts_of(session, budget, effects);
            if (session.put_head != 0) await(deadline);
            return;
        }
        case Deadline::Kind::kTtl:
            freshen(deadline.ref, effects);
            return;
        case Deadline::Kind::kSoftPin:
            end_soft_pin(deadline.ref, table_.object(deadline.ref));
            return;
    }
}

// The object gets in line with those that were never pinned, at the place of its last access.
void Machine::end_soft_pin(Ref ref, Object& object) {
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        const SegmentIndex index = placed(object, i).segment;
        leave_order(object, index, bytes_on(index, object.size));
    }
    object.flags = static_cast<std::uint8_t>(object.flags & ~kSoftPin);
    --soft_pinned_count_;
    enter_orders(ref);
}

void Machine::end_sessions(std::size_t& budget, Effects& effects) {
    while (budget > 0 && !sessions_.ending().empty()) {
        --budget;
        if (!end_session(*sessions_.find_ending(sessions_.ending().front()), budget, effects)) return;
    }
}

void Machine::reap_puts(std::size_t& budget, Effects& effects) {
    while (budget > 0 && puts_.oldest() != 0 &&
           now_ms_ - puts_.at(puts_.oldest()).started_ms >= options_.put_start_release_ms) {
        --budget;
        ++counters_.puts_reaped;
        drop_put(puts_.oldest(), ReplicaEvent::kReaped, effects, nullptr);
    }
}

// Looks through whatever may still name a segment that left the pool. True: nothing does.
bool Machine::sweep_expelled(std::size_t& budget, Effects& effects) {
    if (segments_.expelled_count() == 0) return true;
    const auto named = [&](ReplicaStatus status) { return segments_.expelled_replicas(status) > 0; };
    if (named(ReplicaStatus::kLive)) sweep_table(budget, effects);
    if (named(ReplicaStatus::kUnfinished)) sweep_puts(budget, effects);
    if (named(ReplicaStatus::kRetiring)) sweep_retiring(budget, effects);
    segments_.free_empty_slots();
    return segments_.expelled_count() == 0;
}

void Machine::sweep_table(std::size_t& budget, Effects& effects) {
    scanned_.clear();
    sweep_table_cursor_ =
        table_.scan(sweep_table_cursor_, budget, kExaminedAKey * options_.keys_a_step_max, scanned_);
    budget -= std::min(budget, scanned_.size());
    for (const Ref ref : scanned_) {
        if (table_.object(ref).is_visible()) drop_expelled_replicas(ref, effects);
    }
}

// The put stays, with what is left of it: its owner ends it.
void Machine::sweep_puts(std::size_t& budget, Effects& effects) {
    for (; budget > 0 && sweep_put_cursor_ < puts_.slot_count(); ++sweep_put_cursor_) {
        Put& put = puts_.at(static_cast<PutIndex>(sweep_put_cursor_));
        if (put.put_id == 0) continue;
        --budget;
        const Object& object = table_.object(put.record);
        const std::uint64_t subject = table_.hash(object.tenant, object.key());
        std::uint8_t kept = 0;
        for (std::size_t i = 0; i < put.replica_count; ++i) {
            const Placed one = put.replicas[i];
            if (segments_.at(one.segment).is_mounted()) {
                put.replicas[kept++] = one;
            } else {
                change({one, bytes_on(one.segment, put.size)}, ReplicaStatus::kUnfinished,
                       ReplicaEvent::kExpelled, subject, effects);
            }
        }
        put.replica_count = kept;
    }
    if (sweep_put_cursor_ >= puts_.slot_count()) sweep_put_cursor_ = 0;
}

void Machine::sweep_retiring(std::size_t& budget, Effects& effects) {
    std::vector<ReplicaPosition> gone;
    const std::size_t examined = std::max<std::size_t>(budget, 1);
    sweep_retiring_cursor_ = retiring_.visit_some(
        sweep_retiring_cursor_, examined, [&](wire::ReplicaId replica, const Retiring::Entry& entry) {
            if (!segments_.at(entry.segment).is_mounted())
                gone.push_back({{replica, entry.segment}, entry.bytes});
        });
    for (const auto& replica : gone) {
        change(replica, ReplicaStatus::kRetiring, ReplicaEvent::kExpelled, 0, effects);
    }
}

void Machine::compact_orders(std::size_t& budget) {
    const auto& mounted = segments_.mounted();
    for (std::size_t i = 0; i < mounted.size() && budget > 0; ++i) {
        Segment& segment = segments_.at(mounted[(compact_position_ + i) % mounted.size()]);
        segment.order->compact(table_, policy_->clock(), budget);
        segment.soft_order->compact(table_, policy_->clock(), budget);
    }
    ++compact_position_;
}

}  // namespace mooncake::metadata
