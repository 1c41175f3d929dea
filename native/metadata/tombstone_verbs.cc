// What masters after this one must not take in: collected here, told to the nodes (which keep it and hand it
// to a master that starts) and to the driver (which keeps it in the state file); and what this master was
// handed itself.
#include <algorithm>

#include "metadata/machine.h"
#include "wire/digest.h"

namespace mooncake::metadata {

bool Machine::tombstones(State& command, Effects& effects) {
    const auto& request = std::get<wire::TombstonesRequest>(command.message);
    sessions_.find(command.prefix.session)->heard_ms = now_ms_;
    if (request.kept) restore_tombstones(*request.kept, effects);
    tell_tombstones();  // what the node handed over is in what it keeps from now on
    wire::Writer writer(command.body);
    wire::encode_tombstones_reply(told_generation_, told_bytes_, writer);
    command.finish(wire::Status::kOk);
    return true;
}

void Machine::restore_tombstones(const wire::Tombstones& told) {
    if (!tombstones_.restore(told, first_epoch_)) dead_overflow_ = true;
}

void Machine::restore_tombstones(const wire::Tombstones& told, Effects& effects) {
    if (!is_rebuilding()) return;  // nothing comes in any more that it could end
    restore_tombstones(told);
    ++counters_.tombstone_lists;
    is_dead_sweep_due_ = true;
    sweep_dead_cursor_ = 0;
    const std::vector<SegmentIndex> mounted = segments_.mounted();
    for (const auto index : mounted) {
        const Segment& segment = segments_.at(index);
        if (segment.inventory_epoch == 0 ||
            !tombstones_.is_too_late(segment.inventory_epoch, segment.incarnation)) {
            continue;
        }
        expel(index, wire::EventReason::kStalled, effects);  // taken in before anybody told
    }
}

void Machine::note_removed(std::uint32_t tenant, std::string_view key, wire::PutId put_id) {
    note_dead(table_.hash(tenant, key), put_id);
    if (!is_rebuilding()) return;
    switch (tombstones_.note_key(wire::key_digest(tenants_.name(tenant), key), put_id)) {
        case Tombstones::Noted::kNew:
            return tell_soon();
        case Tombstones::Noted::kNoRoom:
            dead_overflow_ = true;
            return;
        case Tombstones::Noted::kKnown:
            return;
    }
}

void Machine::note_expelled(const Segment& segment) {
    if (tombstones_.is_expelled(segment.incarnation)) return;
    tell_soon();
    if (tombstones_.note_expelled(segment.incarnation)) return;
    // Whoever is not in the pool now has followed a lower one, for good.
    begin_epoch(epoch_ + 1);
    tombstones_.raise_closed(epoch_);
}

void Machine::note_ended(Segment& segment, wire::ReplicaId replica) {
    ++segment.ended_count;
    if (segment.ended.size() < Segment::kEndedMax) {
        segment.ended.insert(replica, now_ms_);
    } else {
        segment.ended_floor = std::max(segment.ended_floor, wire::make_id(epoch_, counter_));
    }
}

void Machine::forget_ended(Segment& segment, wire::ReplicaId replica) {
    segment.ended.erase(replica);
    if (--segment.ended_count == 0) segment.ended_floor = 0;
}

void Machine::tell_soon() {
    is_news_ = true;
    tell_tombstones_ms_ = now_ms_;
}

void Machine::tell_tombstones() {
    is_news_ = false;
    tell_tombstones_ms_ = now_ms_ + kTellTombstonesMs;
    wire::Tombstones own;
    own.epoch = epoch_;
    for (const auto index : segments_.mounted()) {
        const Segment& segment = segments_.at(index);
        if (segment.ended_count == 0) continue;
        const bool is_listed = own.replicas.size() + segment.ended.size() <= wire::kTombstonesMax / 2;
        const wire::ReplicaId floor =
            is_listed ? segment.ended_floor : std::max(segment.ended_floor, wire::make_id(epoch_, counter_));
        if (floor != 0) own.floors.push_back({segment.incarnation, floor});
        if (!is_listed) continue;
        segment.ended.visit_all([&](wire::ReplicaId replica, std::uint64_t since_ms) {
            if (since_ms + kTellTombstonesMs <= now_ms_) own.replicas.push_back(replica);
        });
    }
    wire::Tombstones now = tombstones_.list(std::move(own));
    if (now == told_) return;
    told_ = std::move(now);
    ++told_generation_;
    told_bytes_.clear();
    wire::Writer writer(told_bytes_);
    wire::encode(told_, writer);
}

// Values taken in before somebody told that they are dead. True: none is left to look for.
bool Machine::sweep_dead(std::size_t& budget, Effects& effects) {
    if (!is_dead_sweep_due_) return true;
    if (budget == 0) return false;
    scanned_.clear();
    sweep_dead_cursor_ =
        table_.scan(sweep_dead_cursor_, budget, kExaminedAKey * options_.keys_a_step_max, scanned_);
    budget -= std::min(budget, scanned_.size());
    for (const Ref ref : scanned_) {
        if (table_.object(ref).is_visible()) drop_if_told_dead(ref, effects);
    }
    is_dead_sweep_due_ = sweep_dead_cursor_ != 0;
    return !is_dead_sweep_due_;
}

bool Machine::is_told_dead(const Object& object, const Placed& one) const {
    return tombstones_.is_dead(one.replica, segments_.at(one.segment).incarnation) ||
           tombstones_.is_dead_key(wire::key_digest(tenants_.name(object.tenant), object.key()),
                                   object.put_id);
}

// Whether what was taken in may be judged at all.
bool Machine::may_be_dead(const Object& object) const {
    return tombstones_.judges() && wire::epoch_of(object.put_id) < first_epoch_;
}

}  // namespace mooncake::metadata
