// Replicas: the one function that changes a status, and how an object holds them.
#include <cassert>

#include "metadata/machine.h"
#include "wire/range_bytes.h"

namespace mooncake::metadata {

namespace {

constexpr wire::EventKind told_kind(ReplicaEvent event) {
    switch (event) {
        case ReplicaEvent::kPlaced:
            return wire::EventKind::kPlaced;
        case ReplicaEvent::kCommitted:
            return wire::EventKind::kCommitted;
        case ReplicaEvent::kFailed:
            return wire::EventKind::kFailed;
        case ReplicaEvent::kRevoked:
            return wire::EventKind::kRevoked;
        case ReplicaEvent::kReaped:
            return wire::EventKind::kReaped;
        case ReplicaEvent::kSuperseded:
            return wire::EventKind::kSuperseded;
        case ReplicaEvent::kRemoved:
            return wire::EventKind::kRemoved;
        case ReplicaEvent::kEvicted:
            return wire::EventKind::kEvicted;
        case ReplicaEvent::kExpired:
            return wire::EventKind::kExpired;
        case ReplicaEvent::kFreed:
            return wire::EventKind::kFreed;
        case ReplicaEvent::kExpelled:
            return wire::EventKind::kLost;
        case ReplicaEvent::kAdopted:
            return wire::EventKind::kAdopted;
        case ReplicaEvent::kCopyPlaced:
            return wire::EventKind::kCopyBegun;
        case ReplicaEvent::kCopied:
            return wire::EventKind::kCopied;
        case ReplicaEvent::kCopyFailed:
            return wire::EventKind::kCopyFailed;
        case ReplicaEvent::kMoved:
            return wire::EventKind::kMoved;
        case ReplicaEvent::kForgotten:
            return wire::EventKind::kForgotten;
    }
    return wire::EventKind::kPlaced;
}

}  // namespace

void Machine::change(const ReplicaPosition& replica, ReplicaStatus from, ReplicaEvent event,
                     std::uint64_t subject, Effects& effects) {
    const ReplicaTransition* row = replica_transition(from, event);
    assert(row != nullptr);
    Segment& segment = segments_.at(replica.placed.segment);
    has_placed_ = has_placed_ || event == ReplicaEvent::kPlaced || event == ReplicaEvent::kCopyPlaced;
    segments_.change(replica.placed.segment, from, row->to, replica.bytes);
    CopyEvent told{now_ms_, replica.placed.replica, segment.id,
                   CopyEvent::subject_of(subject) & CopyEvent::kSubjectMask,
                   static_cast<std::uint8_t>(told_kind(event))};
    if (from == ReplicaStatus::kRetiring) {
        const Retiring::Entry* entry = retiring_.find(replica.placed.replica);
        told.subject = entry->subject;
        if (entry->is_tombstone) forget_ended(segment, replica.placed.replica);
        discount_ended(segment, replica.placed.replica, *entry);
        retiring_.erase(replica.placed.replica);
    }
    if (row->to == ReplicaStatus::kLive)
        segment.held_with(replica.placed.replica).add(replica.placed.replica);
    if (from == ReplicaStatus::kLive && row->to == ReplicaStatus::kNone) {
        segment.held_with(replica.placed.replica).remove(replica.placed.replica);
    }
    if (row->to == ReplicaStatus::kRetiring) {
        Retiring::Entry entry;
        entry.bytes = replica.bytes & Retiring::kBytesMask;
        entry.segment = replica.placed.segment;
        entry.subject = told.subject;
        entry.was_visible = from == ReplicaStatus::kLive ? 1 : 0;
        segment.unsure_count += 1 - entry.was_visible;
        entry.is_tombstone = ends_for_good(event) ? 1 : 0;
        if (entry.is_tombstone != 0) note_ended(segment, replica.placed.replica);
        retiring_.insert(replica.placed.replica, entry);
        effects.push_back({Effect::Kind::kRetire, segment.id, replica.placed.replica, 0});
    }
    journal_.add(told);
}

// A key is removed, or gets another value: whoever is told so relies on it that no replica which ended before
// is read any more, although it was another's to end, or only evicted. What was never visible is not waited
// for: a put that tries again after a node stopped would wait for that node. Called before the command ends
// its own.
void Machine::await_earlier_ends(std::uint64_t hash, State& command, Effects& effects) {
    // To the second; of what ended so lately somebody may remember a place.
    constexpr std::uint64_t kDepartureGrainMs = 1'000;
    const auto departed = departures_.find(hash);
    const std::uint64_t lately_ms = options_.location_ttl_ms + kDepartureGrainMs;
    command.ended_lately = command.ended_lately || (departed && departed->at_ms + lately_ms >= now_ms_);
    std::size_t left = kEarlierEndsMax;
    const std::uint64_t subject = CopyEvent::subject_of(hash) & CopyEvent::kSubjectMask;
    for (auto replica = retiring_.last_unconfirmed(subject); replica != 0 && left > 0; --left) {
        const Retiring::Entry entry = *retiring_.find(replica);
        Segment& segment = segments_.at(entry.segment);
        if (segment.is_mounted() && entry.was_visible != 0) {
            if (entry.is_tombstone == 0) {
                note_ended(segment, replica);
                retiring_.set_tombstone(replica, true);
            }
            command.retired.push_back(replica);
            effects.push_back({Effect::Kind::kAwait, segment.id, replica, 0});
        }
        replica = entry.next;
    }
}

void Machine::met_lost_copy(Effects& effects) const {
    if (options_.location_ttl_ms != 0) effects.push_back({Effect::Kind::kLostCopy, 0, 0, 0});
}

bool Machine::end_replica(const ReplicaPosition& replica, ReplicaStatus from, ReplicaEvent event,
                          std::uint64_t subject, Effects& effects) {
    const bool here = segments_.at(replica.placed.segment).is_mounted();
    change(replica, from, here ? event : ReplicaEvent::kExpelled, subject, effects);
    if (!here && from == ReplicaStatus::kLive) met_lost_copy(effects);
    return here;
}

std::uint64_t Machine::bytes_on(SegmentIndex segment, std::uint64_t size) const {
    return wire::range_bytes(size, segments_.at(segment).tier);
}

void Machine::set_value(Object& object, std::span<const Placed> replicas, std::uint64_t soft_pin_until_ms,
                        std::uint64_t ttl_until_ms) {
    assert(object.extra == 0 && !replicas.empty());
    object.replica = replicas[0].replica;
    object.segment = replicas[0].segment;
    object.replica_count = static_cast<std::uint8_t>(replicas.size()) & 0xF;
    if (replicas.size() == 1 && soft_pin_until_ms == 0 && ttl_until_ms == 0) return;
    object.extra = extras_.allocate(Extra::bytes(replicas.size()));
    Extra& extra = extras_.at<Extra>(object.extra);
    extra.soft_pin_until_ms = soft_pin_until_ms;
    extra.ttl_until_ms = ttl_until_ms;
    for (std::size_t i = 1; i < replicas.size(); ++i) extra.more()[i - 1] = replicas[i];
}

void Machine::replace_replicas(Object& object, std::span<const Placed> replicas) {
    std::uint64_t soft_pin_until_ms = 0;
    std::uint64_t ttl_until_ms = 0;
    if (object.extra != 0) {
        const Extra& extra = extras_.at<Extra>(object.extra);
        soft_pin_until_ms = extra.soft_pin_until_ms;
        ttl_until_ms = extra.ttl_until_ms;
        extras_.free(object.extra, Extra::bytes(object.replica_count));
        object.extra = 0;
    }
    set_value(object, replicas, soft_pin_until_ms, ttl_until_ms);
}

// Leaves the record without a value; flags that speak of the value go with it.
void Machine::clear_value(Object& object) {
    if (object.extra != 0) extras_.free(object.extra, Extra::bytes(object.replica_count));
    object.put_id = 0;
    object.size = 0;
    object.replica = 0;
    object.extra = 0;
    object.segment = 0;
    object.replica_count = 0;
    object.replicas_wanted = 0;
    object.lease_until_ms = 0;
    object.lease_count = 0;
    object.hold_until_ms = 0;
    object.flags &= kHasPut;
}

// Where the object waits for eviction on that segment; nullptr for what is never evicted, or not now.
EvictionOrder* Machine::order_of(const Object& object, SegmentIndex index) {
    Segment& segment = segments_.at(index);
    if (object.has(kHardPin) || object.has(kGuarded) || !segment.is_mounted()) return nullptr;
    return object.has(kSoftPin) ? segment.soft_order.get() : segment.order.get();
}

void Machine::enter_orders(Ref ref) {
    const Object& object = table_.object(ref);
    for (std::size_t i = 0; i < object.replica_count; ++i)
        enter_order(ref, object, placed(object, i).segment);
}

void Machine::enter_order(Ref ref, const Object& object, SegmentIndex index) {
    Segment& segment = segments_.at(index);
    const std::uint64_t bytes = bytes_on(index, object.size);
    if (object.has(kHardPin)) segment.hard_pinned_bytes += bytes;
    if (object.has(kSoftPin)) segment.soft_pinned_bytes += bytes;
    if (auto* order = order_of(object, index)) order->inserted(ref, object, policy_->clock());
}

void Machine::leave_order(const Object& object, SegmentIndex index, std::uint64_t bytes) {
    Segment& segment = segments_.at(index);
    if (object.has(kHardPin)) segment.hard_pinned_bytes -= bytes;
    if (object.has(kSoftPin)) segment.soft_pinned_bytes -= bytes;
    if (auto* order = order_of(object, index)) order->removed();
}

}  // namespace mooncake::metadata
