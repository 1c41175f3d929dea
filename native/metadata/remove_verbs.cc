// Ending values: remove, and the steps by which every value ends.
#include <cassert>

#include "metadata/machine.h"
#include "metadata/probe.h"

namespace mooncake::metadata {

bool Machine::remove_keys(State& command, Effects& effects) {
    const auto& request = std::get<wire::KeysRequest>(command.message);
    if (!command.cursor) command.cursor.emplace(request.keys);
    const std::uint32_t tenant = sessions_.find(command.prefix.session)->tenant;
    const bool removes_copies = (command.prefix.flags & wire::kRemoveCopies) != 0;
    probe_keys(command, tenant, options_.keys_a_step_max, [&](std::string_view key, Ref ref) {
        if (wire::is_valid_key(key)) await_earlier_ends(table_.hash(tenant, key), command, effects);
        const wire::Status status =
            wire::is_valid_key(key) ? remove_one(command, ref, effects) : wire::Status::kInvalidKey;
        // Whatever a node still comes with was removed by this, unless another copy stays.
        const bool is_gone = status == wire::Status::kOk || status == wire::Status::kObjectNotFound;
        if (is_gone && !(removes_copies && has_value(tenant, key))) {
            note_removed(tenant, key, wire::make_id(epoch_, counter_));
            command.ends_unseen = is_rebuilding() && has_predecessor();
        }
        if (!wire::ok(status)) ++command.failed_items;
        command.statuses.push_back(status);
        return true;
    });
    if (!command.cursor->done()) return false;
    wire::Writer writer(command.body);
    wire::encode_statuses(command.statuses, writer);
    command.finish(wire::Status::kOk);
    return true;
}

wire::Status Machine::remove_one(State& command, Ref ref, Effects& effects) {
    if (ref == 0 || !freshen(ref, effects)) return wire::Status::kObjectNotFound;
    const bool force = (command.prefix.flags & wire::kRemoveForce) != 0;
    const bool removes_copies = (command.prefix.flags & wire::kRemoveCopies) != 0;
    const Object& object = table_.object(ref);
    if (!object.is_visible()) {
        if (!force || removes_copies) return wire::Status::kNotReady;
        drop_put(puts_.find_record(ref), ReplicaEvent::kRevoked, effects, &command.retired);
        return wire::Status::kOk;
    }
    if (!force && object.is_leased(now_ms_)) return wire::Status::kObjectHasLease;
    if (removes_copies) return remove_copies(command, ref, effects);
    ++counters_.removed_keys;
    end_value(ref, ReplicaEvent::kRemoved, effects, &command.retired);
    return wire::Status::kOk;
}

bool Machine::has_value(std::uint32_t tenant, std::string_view key) const {
    const Ref ref = table_.find(table_.hash(tenant, key), tenant, key);
    return ref != 0 && table_.object(ref).is_visible();
}

wire::Status Machine::remove_copies(State& command, Ref ref, Effects& effects) {
    Object& object = table_.object(ref);
    std::array<Placed, wire::kReplicasMax> going;
    std::size_t count = 0;
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        const Placed one = placed(object, i);
        if (command.avoid.contains(segments_.at(one.segment).id)) going[count++] = one;
    }
    if (count == 0) return wire::Status::kReplicaNotFound;
    if (count == object.replica_count) {
        ++counters_.removed_keys;
        end_value(ref, ReplicaEvent::kRemoved, effects, &command.retired);
        return wire::Status::kOk;
    }
    abandon_copy_of(ref, effects);
    for (std::size_t i = 0; i < count; ++i) {
        command.retired.push_back(going[i].replica);
        drop_replica(ref, going[i], ReplicaEvent::kRemoved, effects);
    }
    object.replicas_wanted = object.replica_count;  // else a repair would bring them back
    return wire::Status::kOk;
}

void Machine::end_value(Ref ref, ReplicaEvent event, Effects& effects,
                        std::vector<wire::ReplicaId>* retired) {
    Object& object = table_.object(ref);
    assert(object.is_visible());
    abandon_copy_of(ref, effects);
    const std::uint64_t subject = table_.hash(object.tenant, object.key());
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        const Placed one = placed(object, i);
        const ReplicaPosition replica{one, bytes_on(one.segment, object.size)};
        leave_order(object, one.segment, replica.bytes);
        const bool retires = end_replica(replica, ReplicaStatus::kLive, event, subject, effects);
        if (retires && retired != nullptr) retired->push_back(one.replica);
    }
    // What was lost with its nodes may come back by another copy. What was evicted may not: entries of
    // eviction orders are told apart by their put_id, which must not become visible twice.
    note_dead(subject, was_lost(event) ? object.put_id - 1 : object.put_id);
    note_end(subject, event);
    --visible_count_;
    value_bytes_ -= object.size;
    if (object.has(kHardPin)) --hard_pinned_count_;
    if (object.has(kSoftPin)) --soft_pinned_count_;
    if (ttl_until_ms(object) != 0) --ttl_count_;
    clear_value(object);
    if (!object.has(kHasPut)) erase_record(ref);
}

void Machine::note_end(std::uint64_t hash, ReplicaEvent event) {
    switch (event) {
        case ReplicaEvent::kEvicted:
            return departures_.note(hash, wire::Absence::kEvicted, now_ms_);
        case ReplicaEvent::kRemoved:
            return departures_.note(hash, wire::Absence::kRemoved, now_ms_);
        case ReplicaEvent::kExpired:
            return departures_.note(hash, wire::Absence::kExpired, now_ms_);
        case ReplicaEvent::kExpelled:
        case ReplicaEvent::kForgotten:
            return departures_.note(hash, wire::Absence::kLost, now_ms_);
        case ReplicaEvent::kFailed:
        case ReplicaEvent::kRevoked:
        case ReplicaEvent::kReaped:
            return departures_.note(hash, wire::Absence::kAbandoned, now_ms_);
        default:  // another value is there
            return;
    }
}

void Machine::erase_record(Ref ref) {
    tenants_.release(table_.object(ref).tenant);
    table_.erase(ref);
}

bool Machine::freshen(Ref ref, Effects& effects) {
    Object& object = table_.object(ref);
    if (!object.is_visible()) return true;
    if (segments_.expelled_count() > 0 && !drop_expelled_replicas(ref, effects)) return false;
    if (object.is_visible() && tombstones_.judges() && !drop_if_told_dead(ref, effects)) return false;
    if (!object.is_visible()) return true;
    const std::uint64_t until = ttl_until_ms(object);
    if (until == 0 || until > now_ms_) return true;
    const bool stays = object.has(kHasPut);
    ++counters_.expired_keys;
    end_value(ref, ReplicaEvent::kExpired, effects, nullptr);
    return stays;
}

// False: it was the last replica of a value, and no put needs the record.
bool Machine::drop_expelled_replicas(Ref ref, Effects& effects) {
    Object& object = table_.object(ref);
    std::array<Placed, wire::kReplicasMax> kept;
    std::size_t kept_count = 0;
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        const Placed one = placed(object, i);
        if (segments_.at(one.segment).is_mounted()) kept[kept_count++] = one;
    }
    if (kept_count == object.replica_count) return true;
    met_lost_copy(effects);
    if (kept_count == 0) {
        const bool stays = object.has(kHasPut);
        ++counters_.lost_keys;
        end_value(ref, ReplicaEvent::kExpelled, effects, nullptr);
        return stays;
    }
    const std::uint64_t subject = table_.hash(object.tenant, object.key());
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        const Placed one = placed(object, i);
        if (segments_.at(one.segment).is_mounted()) continue;
        const ReplicaPosition replica{one, bytes_on(one.segment, object.size)};
        leave_order(object, one.segment, replica.bytes);
        change(replica, ReplicaStatus::kLive, ReplicaEvent::kExpelled, subject, effects);
    }
    replace_replicas(object, {kept.data(), kept_count});
    queue_repair(ref, 0);
    return true;
}

// What was taken in before another node, or a later chunk, told that it is dead. False: the record is gone.
bool Machine::drop_if_told_dead(Ref ref, Effects& effects) {
    const Object& object = table_.object(ref);
    if (!may_be_dead(object)) return true;
    for (std::size_t i = object.replica_count; i-- > 0;) {
        const Placed one = placed(object, i);
        if (!is_told_dead(object, one)) continue;
        abandon_copy_of(ref, effects);
        if (object.replica_count > 1) {
            drop_replica(ref, one, ReplicaEvent::kRemoved, effects);
            continue;
        }
        const bool stays = object.has(kHasPut);
        ++counters_.dead_keys;
        end_value(ref, ReplicaEvent::kRemoved, effects, nullptr);
        return stays;
    }
    return true;
}

}  // namespace mooncake::metadata
