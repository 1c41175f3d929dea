// The one way a value comes to a further segment: place a replica there, have its node fetch it from another
// one's, commit. Repair, handover and tasks differ only in why and where to.
//
// The object is guarded meanwhile: no eviction takes it. Everything else may end it, and then the copy ends
// with it; so a copy that is answered for is of the value that is visible.
#include <algorithm>
#include <cassert>

#include "metadata/machine.h"
#include "wire/digest.h"

namespace mooncake::metadata {

namespace {

constexpr std::uint64_t kBytesASecondMin = 16u << 20;  // slower than this a copy is given up

}  // namespace

bool Machine::may_copy_more() const { return copies_.size() < options_.copies_max; }

bool Machine::is_busy_copying(wire::SessionId node) const {
    std::size_t from = 0;
    std::size_t to = 0;
    for (const auto& copy : copies_.all()) {
        from += segments_.at(copy.source.segment).owner == node;
        to += segments_.at(copy.target.segment).owner == node;
    }
    return std::max(from, to) >= options_.copies_a_node_max;
}

// Where a further replica may go: on a host that has none while there is one, then where most is free.
Machine::CopyPlace Machine::choose_copy_target(const Object& object, SegmentIndex leaving,
                                               double used_ratio_max) const {
    const auto shares_host = [&](const Segment& segment) {
        for (std::size_t i = 0; i < object.replica_count; ++i) {
            const Segment& other = segments_.at(placed(object, i).segment);
            const bool stays = placed(object, i).segment != leaving && other.is_mounted();
            if (stays && !segment.host_id.empty() && segment.host_id == other.host_id) return true;
        }
        return false;
    };
    CopyPlace best;
    bool best_shares = false;
    bool is_apart_busy = false;  // on a host that has none
    for (const auto index : segments_.mounted_dram()) {
        const Segment& segment = segments_.at(index);
        const std::uint64_t bytes = bytes_on(index, object.size);
        const auto used_after = static_cast<double>(segment.charged_bytes() + bytes);
        if (is_on(object, index)) continue;
        if (!segment.fits(bytes) || !answers(segment) ||
            used_after > used_ratio_max * static_cast<double>(segment.capacity_bytes)) {
            best.is_full = true;
            continue;
        }
        const bool shares = shares_host(segment);
        const bool is_better =
            !best.found || shares < best_shares ||
            (shares == best_shares && segment.free_ratio() > segments_.at(best.segment).free_ratio());
        if (!is_better) continue;
        // Asked last: it looks through all copies.
        if (is_busy_copying(segment.owner)) {
            best.may_come = true;
            is_apart_busy = is_apart_busy || !shares;
            continue;
        }
        best.found = true;
        best.segment = index;
        best_shares = shares;
    }
    // Rather a moment later than on the same host for good.
    if (best_shares && is_apart_busy) best.found = false;
    return best;
}

bool Machine::is_on(const Object& object, SegmentIndex index) const {
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        if (placed(object, i).segment == index) return true;
    }
    return false;
}

void Machine::start_copy(Ref ref, const Placed& source, SegmentIndex to, const CopyReason& reason,
                         Effects& effects) {
    const Object& object = table_.object(ref);
    assert(object.is_visible() && !object.has(kGuarded) && is_held(ref, source.replica));
    const Placed target{next_id(), to};
    change({target, bytes_on(to, object.size)}, ReplicaStatus::kNone, ReplicaEvent::kCopyPlaced,
           table_.hash(object.tenant, object.key()), effects);
    guard(ref);
    const std::uint64_t patience_ms = options_.copy_timeout_ms + object.size / kBytesASecondMin * 1'000;
    copies_.add({target, source, object.put_id, ref, object.size, later(patience_ms), reason.moves,
                 reason.attempts, reason.task});
    ++counters_.copies_started;
    effects.push_back({Effect::Kind::kCopy, segments_.at(to).id, target.replica, segments_.at(to).owner});
}

std::optional<CopyOrder> Machine::copy_order(wire::ReplicaId target) const {
    const Copy* copy = copies_.find(target);
    if (copy == nullptr || copy->until_ms <= now_ms_) return std::nullopt;
    const Object& object = table_.object(copy->record);
    const Segment& source = segments_.at(copy->source.segment);
    CopyOrder order;
    order.target = target;
    order.segment = segments_.at(copy->target.segment).id;
    order.source = copy->source.replica;
    order.digest = wire::key_digest(tenants_.name(object.tenant), object.key());
    order.put_id = copy->put_id;
    order.size = copy->size;
    order.timeout_ms = copy->until_ms - now_ms_;
    order.endpoints = source.endpoints;
    return order;
}

std::vector<wire::ReplicaId> Machine::copies_to(wire::SessionId node) const {
    std::vector<wire::ReplicaId> targets;
    for (const auto& copy : copies_.all()) {
        if (segments_.at(copy.target.segment).owner == node) targets.push_back(copy.target.replica);
    }
    return targets;
}

// A node speaks for its own copies only; one that has ended already has nothing to say.
void Machine::copy_answered(wire::SessionId node, wire::ReplicaId target, wire::Status status,
                            std::uint64_t now_ms, Effects& effects) {
    advance_clock(now_ms);
    const Copy* copy = copies_.find(target);
    if (copy == nullptr || segments_.at(copy->target.segment).owner != node) return;
    if (wire::ok(status) || status == wire::Status::kSealed) {
        commit_copy(Copy(*copy), effects);
    } else {
        ++counters_.copies_failed;
        fail_copy(Copy(*copy), std::string("its node answers ") + wire::status_name(status), effects);
    }
    go_on_copying(effects);
}

void Machine::commit_copy(const Copy& copy, Effects& effects) {
    if (table_.object(copy.record).replica_count == wire::kReplicasMax) {
        end_copy(copy, effects);
        if (copy.task != 0) task_copy_failed(copy, "there are as many copies as may be");
        return;
    }
    copies_.remove(copy.target.replica);
    unguard(copy.record);
    const Object& object = table_.object(copy.record);
    assert(object.put_id == copy.put_id);
    const std::uint64_t subject = table_.hash(object.tenant, object.key());
    const ReplicaPosition target{copy.target, bytes_on(copy.target.segment, copy.size)};
    change(target, ReplicaStatus::kCopying, ReplicaEvent::kCopied, subject, effects);
    add_replica(copy.record, copy.target);
    ++counters_.copies_committed;
    counters_.copied_bytes += copy.size;
    if (copy.moves && is_held(copy.record, copy.source.replica)) {
        if (copy.task == 0) {
            ++counters_.handed_over_keys;
            ++segments_.at(copy.source.segment).handed_over;
        }
        drop_replica(copy.record, copy.source, ReplicaEvent::kMoved, effects);
    }
    if (object.replica_count < object.replicas_wanted) queue_repair(copy.record, 0);
    if (copy.task != 0) task_copied(copy);
}

// The replica goes, the object stays.
void Machine::drop_replica(Ref ref, const Placed& source, ReplicaEvent event, Effects& effects) {
    Object& object = table_.object(ref);
    const ReplicaPosition position{source, bytes_on(source.segment, object.size)};
    if (auto* order = order_of(object, source.segment)) order->withdrawn(object);
    Segment& segment = segments_.at(source.segment);
    if (object.has(kHardPin)) segment.hard_pinned_bytes -= position.bytes;
    if (object.has(kSoftPin)) segment.soft_pinned_bytes -= position.bytes;
    std::array<Placed, wire::kReplicasMax> kept;
    std::size_t count = 0;
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        if (placed(object, i).replica != source.replica) kept[count++] = placed(object, i);
    }
    replace_replicas(object, {kept.data(), count});
    end_replica(position, ReplicaStatus::kLive, event, table_.hash(object.tenant, object.key()), effects);
}

void Machine::fail_copy(const Copy& copy, std::string_view why, Effects& effects) {
    end_copy(copy, effects);
    const auto attempts = static_cast<std::uint8_t>(copy.attempts + 1);
    if (copy.task != 0) {
        task_copy_failed(copy, why);
    } else if (copy.moves) {
        queue_handover(copy.record, attempts);
    } else {
        queue_repair(copy.record, attempts);
    }
}

void Machine::end_copy(const Copy& copy, Effects& effects) {
    copies_.remove(copy.target.replica);
    unguard(copy.record);
    const Object& object = table_.object(copy.record);
    end_replica({copy.target, bytes_on(copy.target.segment, copy.size)}, ReplicaStatus::kCopying,
                ReplicaEvent::kCopyFailed, table_.hash(object.tenant, object.key()), effects);
}

// The value is about to end: so does what was to become a copy of it.
void Machine::abandon_copy_of(Ref ref, Effects& effects) {
    if (!table_.object(ref).has(kGuarded)) return;
    ++counters_.copies_abandoned;
    const Copy copy = *copies_.find_record(ref);
    end_copy(copy, effects);
    if (copy.task != 0) task_copy_failed(copy, "the value ended");
}

// The segment has just left the pool.
void Machine::abandon_copies_on(SegmentIndex index, Effects& effects) {
    const std::vector<Copy> all = copies_.all();
    for (const auto& copy : all) {
        if (copy.source.segment != index && copy.target.segment != index) continue;
        ++counters_.copies_abandoned;
        fail_copy(copy, "its source or target left the pool", effects);
    }
}

void Machine::expire_copies(Effects& effects) {
    const std::vector<Copy> all = copies_.all();
    for (const auto& copy : all) {
        if (copy.until_ms > now_ms_) continue;
        ++counters_.copies_timed_out;
        fail_copy(copy, "its node did not answer in time", effects);
    }
}

void Machine::guard(Ref ref) {
    Object& object = table_.object(ref);
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        if (auto* order = order_of(object, placed(object, i).segment)) order->withdrawn(object);
    }
    object.flags |= kGuarded;
}

void Machine::unguard(Ref ref) {
    Object& object = table_.object(ref);
    object.flags = static_cast<std::uint8_t>(object.flags & ~kGuarded);
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        if (auto* order = order_of(object, placed(object, i).segment))
            order->inserted(ref, object, policy_->clock());
    }
}

// Copies that may begin now. What a leaving node has goes first: it is there for seconds only. Then what
// somebody waits for.
bool Machine::go_on_copying(Effects& effects) {
    const bool handed_over = hand_over(effects);
    const bool tasks_wait = go_on_with_tasks(effects);
    return repair(effects) && handed_over && tasks_wait;
}

}  // namespace mooncake::metadata
