// The index rebuilt from what nodes hold: a master that starts knows nothing, and its nodes tell it.
//
// Sealed counts as committed; of two values of a key the higher put_id wins; equal put_ids are copies of one
// object. What ends while inventories may still come in is noted as dead, so that none brings it back.
#include <algorithm>

#include "metadata/machine.h"
#include "wire/digest.h"
#include "wire/range_bytes.h"

namespace mooncake::metadata {

bool Machine::inventory(State& command, Effects& effects) {
    const auto& request = std::get<wire::Inventory>(command.message);
    Session& session = *sessions_.find(command.prefix.session);
    session.heard_ms = now_ms_;
    if (command.position == 0) {
        if ((request.flags & wire::kInventoryFirst) != 0) session.inventory = {};
        for (const auto& item : request.items) session.inventory.add(item.replica);
        if (session.inventory != request.totals) {
            command.finish(wire::Status::kInvalidParams,
                           "the inventory names " + std::to_string(request.totals.count) +
                               " replicas so far, " + std::to_string(session.inventory.count) +
                               " came, or their checksum differs: begin again");
            return true;
        }
    }
    for (std::size_t done = 0; command.position < request.items.size(); ++done) {
        if (done == options_.keys_a_step_max) return false;
        const std::size_t i = command.position++;
        adopt(session, request.items[i], request.headers[i], effects);
    }
    if ((request.flags & wire::kInventoryLast) != 0) {
        ++counters_.inventories;
        const std::vector<SegmentIndex> mounted = segments_.mounted();
        for (const auto index : mounted) {
            if (segments_.at(index).owner != session.id || segments_.at(index).is_reported) continue;
            segments_.reported(index);
            note_segment(wire::EventKind::kSegmentTold, wire::EventReason::kNone, segments_.at(index));
            effects.push_back({Effect::Kind::kSpaceReturned, segments_.at(index).id, 0, 0});
        }
    }
    command.finish(wire::Status::kOk);
    return true;
}

void Machine::adopt(const Session& session, const wire::InventoryItem& item, const wire::ValueHeader& header,
                    Effects& effects) {
    const SegmentIndex* index = segments_.find(item.segment);
    // Told again after a broken connection, or for a segment that is none of this node's.
    if (index == nullptr || segments_.at(*index).owner != session.id || segments_.at(*index).is_reported) {
        return;
    }
    if (retiring_.find(item.replica) != nullptr) return;
    if (take_in(*index, item, header, effects)) return;
    ++counters_.refused_replicas;
    if (adopted_[wire::mix64(item.replica) >> 58].find(item.replica) != nullptr)
        return;  // not this node's to end
    end_orphan(*index, item.replica, effects);
}

// False: it has no place in the index.
bool Machine::take_in(SegmentIndex index, const wire::InventoryItem& item, const wire::ValueHeader& header,
                      Effects& effects) {
    const Segment& segment = segments_.at(index);
    const std::uint64_t bytes = bytes_on(index, header.size);
    const wire::PutId first_own = wire::make_id(first_epoch_, 0);
    if (!is_rebuilding() || item.replica >= first_own || header.put_id >= first_own ||
        bytes > segment.capacity_bytes - std::min(segment.capacity_bytes, segment.charged_bytes())) {
        return false;
    }
    if (tombstones_.judges() &&
        (tombstones_.is_dead(item.replica, segment.incarnation) ||
         tombstones_.is_dead_key(wire::key_digest(header.tenant, header.key), header.put_id))) {
        return false;
    }
    auto& adopted = adopted_[wire::mix64(item.replica) >> 58];
    const std::uint32_t tenant = tenants_.acquire(header.tenant);
    const std::uint64_t hash = table_.hash(tenant, header.key);
    const bool taken = [&] {
        Ref ref = table_.find(hash, tenant, header.key);
        if (ref != 0 && !freshen(ref, effects)) ref = 0;
        if (ref != 0 && is_held(ref, item.replica)) return true;
        if (is_dead(hash, header.put_id) || adopted.find(item.replica) != nullptr) return false;
        const Placed replica{item.replica, index};
        if (ref != 0 && table_.object(ref).is_visible()) {
            const Object& object = table_.object(ref);
            if (object.put_id > header.put_id) return false;
            if (object.put_id == header.put_id) {
                if (object.size != header.size || object.replica_count == wire::kReplicasMax) return false;
                change({replica, bytes}, ReplicaStatus::kNone, ReplicaEvent::kAdopted, hash, effects);
                add_replica(ref, replica);
                adopted.insert(item.replica, true);
                ++counters_.adopted_replicas;
                return true;
            }
            const bool stays = object.has(kHasPut);
            ++counters_.superseded_keys;
            end_value(ref, ReplicaEvent::kSuperseded, effects, nullptr);
            if (!stays) ref = 0;
        }
        if (ref == 0) {
            std::size_t budget = kExaminedAKey;
            if (make_room_for_key(header.key.size(), budget, effects) != Room::kIsThere) return false;
            ref = table_.insert(hash, tenant, header.key);
            tenants_.acquire(tenant);
        }
        change({replica, bytes}, ReplicaStatus::kNone, ReplicaEvent::kAdopted, hash, effects);
        Value value{header.put_id, header.size, header.ttl_ms, header.soft_pin_ms, 0, 1};
        value.replicas_wanted = std::clamp<std::uint8_t>(header.replica_count, 1, wire::kReplicasMax);
        if ((header.flags & wire::kValueSoftPin) != 0) value.pins = kSoftPin;
        if ((header.flags & wire::kValueHardPin) != 0) value.pins = kHardPin;
        show(ref, value, {&replica, 1});
        adopted.insert(item.replica, true);
        ++counters_.adopted_replicas;
        return true;
    }();
    tenants_.release(tenant);
    return taken;
}

bool Machine::is_held(Ref ref, wire::ReplicaId replica) const {
    const Object& object = table_.object(ref);
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        if (placed(object, i).replica == replica) return true;
    }
    return false;
}

void Machine::add_replica(Ref ref, const Placed& replica) {
    Object& object = table_.object(ref);
    std::array<Placed, wire::kReplicasMax> all;
    std::size_t count = 0;
    for (; count < object.replica_count; ++count) all[count] = placed(object, count);
    all[count++] = replica;
    replace_replicas(object, {all.data(), count});
    enter_order(ref, object, replica.segment);
}

void Machine::note_dead(std::uint64_t hash, wire::PutId put_id) {
    if (!is_rebuilding()) return;
    auto& shard = dead_[hash >> 58];
    hash = std::max<std::uint64_t>(hash, 1);  // 0 marks an empty slot
    if (wire::PutId* known = shard.find(hash)) {
        *known = std::max(*known, put_id);
    } else if (dead_count_ < kDeadKeysMax) {
        shard.insert(hash, put_id);
        ++dead_count_;
    } else {
        dead_overflow_ = true;
    }
}

bool Machine::is_dead(std::uint64_t hash, wire::PutId put_id) const {
    const wire::PutId* known = dead_[hash >> 58].find(std::max<std::uint64_t>(hash, 1));
    return known != nullptr && put_id <= *known;
}

void Machine::end_rebuild() {
    if (is_rebuild_over_) return;
    is_rebuild_over_ = true;
    if (epoch_ > 1) {
        note_pool(wire::EventKind::kRebuildEnded, wire::EventReason::kNone, counters_.adopted_replicas);
    }
    tombstones_.close(first_epoch_);
    dead_ = {};
    dead_count_ = 0;
    adopted_ = {};
}

}  // namespace mooncake::metadata
