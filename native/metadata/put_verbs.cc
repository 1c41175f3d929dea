// The three messages of a write: put_start reserves, put_end commits, put_revoke gives up.
#include <algorithm>
#include <cassert>

#include "metadata/machine.h"
#include "metadata/probe.h"
#include "wire/range_bytes.h"

namespace mooncake::metadata {

bool Machine::put_start(State& command, Effects& effects) {
    const auto& request = std::get<wire::PutStart>(command.message);
    Session& session = *sessions_.find(command.prefix.session);
    std::size_t budget = kExaminedAKey * options_.keys_a_step_max;
    bool again = false;
    if (!command.all_tried) {
        if (!command.cursor) {
            command.cursor.emplace(request.keys);
            command.grants.resize(request.keys.count());
            command.ranges.resize(request.keys.count());
        }
        accesses_.clear();
        probe_keys(command, session.tenant, options_.keys_a_step_max, [&](std::string_view key, Ref ref) {
            const bool is_present = ref != 0 && table_.object(ref).is_visible();
            accesses_.push_back({table_.hash(session.tenant, key), is_present, 0});
            WaitingKey waiting{static_cast<std::uint32_t>(command.position++), key, 0};
            const PutOutcome outcome = start_put(command, session, waiting, budget, effects);
            again = again || outcome == PutOutcome::kAgain;
            if (outcome != PutOutcome::kAnswered) command.waiting.push_back(waiting);
            if (outcome == PutOutcome::kWaits) ++counters_.waits_for_space;
            return true;
        });
        measure_pool();
        policy_->put_began(accesses_, pool_size());
        if (!command.cursor->done()) return false;
        command.all_tried = true;
        command.waiting_position = 0;
    } else {
        // Space may have come back: those that wait, in order.
        std::size_t tries = options_.keys_a_step_max;
        while (command.waiting_position < command.waiting.size()) {
            if (tries-- == 0) return false;
            WaitingKey& waiting = command.waiting[command.waiting_position];
            const PutOutcome outcome = start_put(command, session, waiting, budget, effects);
            again = again || outcome == PutOutcome::kAgain;
            if (outcome == PutOutcome::kAnswered) waiting.index = kAnsweredIndex;
            ++command.waiting_position;
        }
        std::erase_if(command.waiting, [](const WaitingKey& key) { return key.index == kAnsweredIndex; });
        command.waiting_position = 0;
    }
    if (!command.waiting.empty()) return !again;
    finish_put_start(command);
    return true;
}

void Machine::finish_put_start(State& command) {
    wire::Writer writer(command.body);
    writer.put(static_cast<std::uint32_t>(command.grants.size()));
    writer.put(std::uint32_t{0});
    for (const auto& grant : command.grants) writer.put(grant);
    for (const auto& range : command.ranges) {
        for (std::uint32_t i = 0; i < range.count; ++i) writer.put(command.places[range.first + i]);
    }
    command.finish(wire::Status::kOk);
}

void Machine::refuse_waiting(Command& command, std::uint64_t now_ms) {
    advance_clock(now_ms);
    State& state = command.state();
    if (state.done || !command.waits_for_space()) return;
    for (auto& waiting : state.waiting) {
        if (waiting.index == kAnsweredIndex) continue;
        release_promise(waiting.promise);
        ++counters_.allocation_failures;
        answer_put(state, waiting.index, wire::Status::kNoSpace);
    }
    state.waiting.clear();
    finish_put_start(state);
    answered(state);
}

Machine::PutOutcome Machine::start_put(State& command, Session& session, WaitingKey& waiting,
                                       std::size_t& budget, Effects& effects) {
    const auto& request = std::get<wire::PutStart>(command.message);
    release_promise(waiting.promise);
    waiting.promise = 0;
    const auto answer = [&](wire::Status status) {
        answer_put(command, waiting.index, status);
        return PutOutcome::kAnswered;
    };
    const auto no_space = [&] {
        ++counters_.allocation_failures;
        return answer(wire::Status::kNoSpace);
    };
    const std::uint64_t size = request.size(waiting.index);
    Ref ref = wire::is_valid_key(waiting.key)
                  ? table_.find(table_.hash(session.tenant, waiting.key), session.tenant, waiting.key)
                  : 0;
    if (!wire::is_valid_key(waiting.key)) return answer(wire::Status::kInvalidKey);
    const wire::Status allowed = may_put(command, size, ref, effects);
    if (!wire::ok(allowed)) {
        if (allowed == wire::Status::kNoSpace) ++counters_.allocation_failures;
        return answer(allowed);
    }
    const std::vector<SegmentIndex> chosen = choose_segments(request, session, size);
    if (chosen.empty()) {
        switch (
            make_room(wire::range_bytes(size, wire::Tier::kDram), command.avoid, waiting, budget, effects)) {
            case Room::kAgain:
                return PutOutcome::kAgain;
            case Room::kNone:
                return no_space();
            default:
                return PutOutcome::kWaits;
        }
    }
    if (ref == 0) {
        const Room room = make_room_for_key(waiting.key.size(), budget, effects);
        if (room == Room::kAgain) return PutOutcome::kAgain;
        if (room == Room::kNone) return no_space();
    }
    grant(command, session, waiting, ref, chosen, effects);
    return PutOutcome::kAnswered;
}

// Whether a new value of the key may begin at all. A value that this client cannot reach counts as absent: a
// new one takes its place. An unfinished put that nobody will finish gives way; with it may go the record,
// and then ref is 0.
wire::Status Machine::may_put(State& command, std::uint64_t size, Ref& ref, Effects& effects) {
    const wire::PutOptions& options = std::get<wire::PutStart>(command.message).options;
    const bool replaces = (options.flags & wire::kPutUpsert) != 0;
    if (options.replica_count == 0 || options.replica_count > wire::kReplicasMax) {
        return wire::Status::kInvalidParams;
    }
    if (size > wire::kValueBytesMax) return wire::Status::kValueTooLarge;
    if (ref != 0 && !freshen(ref, effects)) ref = 0;
    if (ref != 0) {
        const Object& object = table_.object(ref);
        if (object.is_visible() && !replaces && is_reachable(object, command.avoid)) {
            return wire::Status::kObjectAlreadyExists;
        }
        if (object.has(kHasPut)) {
            const PutIndex put = puts_.find_record(ref);
            if (!is_replaceable(puts_.at(put))) return wire::Status::kNotReady;
            const bool stays = object.is_visible();
            ++counters_.puts_discarded;
            drop_put(put, ReplicaEvent::kRevoked, effects, nullptr);
            if (!stays) ref = 0;
        }
    }
    const bool fits = wire::range_bytes(size, wire::Tier::kDram) <= segments_.largest_dram_bytes();
    if (!fits && segments_.unreported_count() > 0) return wire::Status::kRebuilding;
    if (segments_.mounted_dram().empty()) return wire::Status::kNoSpace;
    if (!fits) return wire::Status::kValueTooLarge;
    return wire::Status::kOk;
}

bool Machine::is_replaceable(const Put& put) const {
    return sessions_.find(put.session) == nullptr ||
           now_ms_ - put.started_ms >= options_.put_start_discard_ms;
}

void Machine::grant(State& command, Session& session, const WaitingKey& key, Ref ref,
                    std::span<const SegmentIndex> chosen, Effects& effects) {
    const auto& request = std::get<wire::PutStart>(command.message);
    const std::uint64_t hash = table_.hash(session.tenant, key.key);
    if (ref == 0) {
        ref = table_.insert(hash, session.tenant, key.key);
        tenants_.acquire(session.tenant);
    }
    Put put;
    put.put_id = next_id();
    put.session = session.id;
    put.started_ms = now_ms_;
    put.size = request.size(key.index);
    put.ttl_ms = request.options.ttl_ms;
    put.soft_pin_ms = request.options.soft_pin_ms;
    put.replicas_wanted = request.options.replica_count;
    put.record = ref;
    // A hard pin is the stronger wish.
    if ((request.options.flags & wire::kPutSoftPin) != 0) put.pins = kSoftPin;
    if ((request.options.flags & wire::kPutHardPin) != 0) put.pins = kHardPin;
    put.keeps_soft_pin = put.pins == 0 && (request.options.flags & wire::kPutKeepSoftPin) != 0;
    for (const auto index : chosen) {
        const Placed one{next_id(), index};
        change({one, bytes_on(index, put.size)}, ReplicaStatus::kNone, ReplicaEvent::kPlaced, hash, effects);
        put.replicas[put.replica_count++] = one;
    }
    if (chosen.size() < request.options.replica_count) ++counters_.partial_allocations;
    table_.object(ref).flags |= kHasPut;
    puts_.add(put, session);

    command.grants[key.index] = {wire::Status::kOk, put.replica_count, 0, 0, put.put_id};
    command.ranges[key.index] = {static_cast<std::uint32_t>(command.places.size()), put.replica_count};
    for (std::size_t i = 0; i < put.replica_count; ++i) {
        command.places.push_back({put.replicas[i].replica, segments_.at(put.replicas[i].segment).id});
    }
}

void Machine::answer_put(State& command, std::uint32_t index, wire::Status status) {
    command.grants[index] = {status, 0, 0, 0, 0};
    ++command.failed_items;
}

bool Machine::put_end(State& command, Effects& effects) {
    const auto& request = std::get<wire::PutEnd>(command.message);
    for (std::size_t done = 0; command.position < request.items.size(); ++done) {
        if (done == options_.keys_a_step_max) return false;
        const wire::PutEndItem& item = request.items[command.position++];
        const std::span results(request.results.data() + command.result_position, item.result_count);
        command.result_position += item.result_count;
        const wire::Status status = end_one(command, item.put_id, results, effects);
        if (!wire::ok(status)) ++command.failed_items;
        command.statuses.push_back(status);
    }
    wire::Writer writer(command.body);
    wire::encode_statuses(command.statuses, writer);
    command.finish(wire::Status::kOk);
    return true;
}

wire::Status Machine::end_one(State& command, wire::PutId put_id,
                              std::span<const wire::ReplicaResult> results, Effects& effects) {
    const PutIndex index = puts_.find(put_id);
    if (index == 0) return wire::Status::kStaleGrant;
    const Put put = puts_.at(index);
    if (put.session != command.prefix.session) return wire::Status::kIllegalClient;
    const auto says = [&](const Placed& one, wire::Status status) {
        return segments_.at(one.segment).is_mounted() &&
               std::any_of(results.begin(), results.end(), [&](const wire::ReplicaResult& result) {
                   return result.replica == one.replica && result.status == status;
               });
    };
    const auto is_written = [&](const Placed& one) {
        return says(one, wire::Status::kOk) || says(one, wire::Status::kSealed);
    };
    Object& object = table_.object(put.record);
    const std::uint64_t subject = table_.hash(object.tenant, object.key());
    const auto retire = [&](const Placed& one, ReplicaEvent event) {
        end_replica({one, bytes_on(one.segment, put.size)}, ReplicaStatus::kUnfinished, event, subject,
                    effects);
    };
    const bool superseded = object.is_visible() && object.put_id > put.put_id;
    const auto placed = std::span(put.replicas).first(put.replica_count);
    if (!superseded && std::any_of(placed.begin(), placed.end(), is_written)) {
        await_earlier_ends(subject, command, effects);
    }
    std::array<Placed, wire::kReplicasMax> written;
    std::size_t written_count = 0;
    for (std::size_t i = 0; i < put.replica_count; ++i) {
        if (!is_written(put.replicas[i])) {
            if (says(put.replicas[i], wire::Status::kNoRange))
                found_no_range(put.replicas[i].segment, put.size);
            retire(put.replicas[i], ReplicaEvent::kFailed);
        } else if (superseded) {
            retire(put.replicas[i], ReplicaEvent::kSuperseded);
        } else {
            written[written_count++] = put.replicas[i];
        }
    }
    if (written_count > 0) {
        commit(put, std::span(written.data(), written_count), command, effects);
        return wire::Status::kOk;
    }
    forget_put(index);
    if (!object.is_visible()) {
        note_end(subject, ReplicaEvent::kFailed);
        erase_record(put.record);
    }
    return superseded ? wire::Status::kSuperseded : wire::Status::kWriteFail;
}

// The bytes were free, and nowhere enough of them together. What is free now does not count for a while, and
// each time in a row twice as much goes beyond it, up to all that may go.
void Machine::found_no_range(SegmentIndex index, std::uint64_t size) {
    Segment& segment = segments_.at(index);
    const std::uint64_t bytes = bytes_on(index, size);
    const std::uint64_t beyond = bytes << std::min(segment.no_ranges, kNoRangeDoublingsMax);
    const std::uint64_t used = segment.used_bytes() - bytes;  // without this one
    const std::uint64_t stays =
        segment.staying_bytes(options_.evict_soft_pinned) - bytes + segment.promised_bytes;
    const auto room_above = [&](std::uint64_t below) {
        return segment.capacity_bytes - std::min(segment.capacity_bytes, below + bytes);
    };
    segment.unusable_bytes = std::min(room_above(used) + beyond, room_above(stays));
    segment.no_range_bytes = bytes;
    segment.no_range_until_ms = later(kNoRangeMs);
    ++segment.no_ranges;
    is_no_range_due_ = true;
}

// Fragments come and go: after a while they are put to the test again.
void Machine::forget_no_ranges() {
    if (!is_no_range_due_) return;
    is_no_range_due_ = false;
    for (const auto index : segments_.mounted()) {
        Segment& segment = segments_.at(index);
        if (segment.no_ranges == 0) continue;
        if (segment.no_range_until_ms <= now_ms_) segment.range_found();
        is_no_range_due_ = is_no_range_due_ || segment.no_ranges > 0;
    }
}

// The value becomes visible; the one it replaces retires.
void Machine::commit(const Put& put, std::span<const Placed> written, State& command, Effects& effects) {
    const Ref ref = put.record;
    Object& object = table_.object(ref);
    Value value{put.put_id, put.size, put.ttl_ms, put.soft_pin_ms, put.pins, put.replicas_wanted};
    if (object.is_visible()) {
        const std::uint64_t left = left_ms(soft_pin_until_ms(object));
        if (put.keeps_soft_pin && left > 0) {
            value.pins = kSoftPin;
            value.soft_pin_ms = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, 0xFFFFFFFF));
        }
        ++counters_.superseded_keys;
        end_value(ref, ReplicaEvent::kSuperseded, effects, &command.retired);
    }
    // Nodes that have not reported yet may hold an older value.
    if (is_rebuilding()) {
        note_removed(object.tenant, object.key(), put.put_id - 1);
        command.ends_unseen = command.ends_unseen || has_predecessor();
    }
    forget_put(puts_.find(put.put_id));
    const std::uint64_t subject = table_.hash(object.tenant, object.key());
    for (const auto& one : written) {
        const std::uint64_t bytes = bytes_on(one.segment, put.size);
        change({one, bytes}, ReplicaStatus::kUnfinished, ReplicaEvent::kCommitted, subject, effects);
        Segment& segment = segments_.at(one.segment);
        if (segment.no_ranges > 0 && bytes >= segment.no_range_bytes) segment.range_found();
    }
    show(ref, value, written);
    if (written.size() < put.replicas_wanted) queue_repair(ref, 0);
    if (segments_.draining_count() > 0) queue_handover(ref, 0);  // it was granted before
}

void Machine::show(Ref ref, const Value& value, std::span<const Placed> replicas) {
    Object& object = table_.object(ref);
    const std::uint64_t soft_ms = value.soft_pin_ms == 0 ? options_.soft_pin_ms : value.soft_pin_ms;
    const std::uint64_t soft_until =
        (value.pins & kSoftPin) != 0 ? later(std::min(soft_ms, options_.soft_pin_max_ms)) : 0;
    const std::uint64_t ttl_until = value.ttl_ms != 0 ? later(value.ttl_ms) : 0;
    object.put_id = value.put_id;
    object.size = value.size;
    object.flags = static_cast<std::uint8_t>(object.flags | value.pins);
    object.replicas_wanted = value.replicas_wanted & 0xF;
    set_value(object, replicas, soft_until, ttl_until);
    raise(object, policy_->filled(table_.hash(object.tenant, object.key())));
    enter_orders(ref);
    ++visible_count_;
    value_bytes_ += object.size;
    if (object.has(kHardPin)) ++hard_pinned_count_;
    if (object.has(kSoftPin)) {
        ++soft_pinned_count_;
        await({soft_until, object.put_id, ref, Deadline::Kind::kSoftPin});
    }
    if (ttl_until != 0) {
        ++ttl_count_;
        await({ttl_until, object.put_id, ref, Deadline::Kind::kTtl});
    }
}

bool Machine::put_revoke(State& command, Effects& effects) {
    const auto& request = std::get<wire::PutRevoke>(command.message);
    for (std::size_t done = 0; command.position < request.put_ids.size(); ++done) {
        if (done == options_.keys_a_step_max) return false;
        const PutIndex index = puts_.find(request.put_ids[command.position++]);
        wire::Status status = wire::Status::kOk;  // one that is over already is revoked as well as can be
        if (index != 0 && puts_.at(index).session != command.prefix.session) {
            status = wire::Status::kIllegalClient;
            ++command.failed_items;
        } else if (index != 0) {
            drop_put(index, ReplicaEvent::kRevoked, effects, &command.retired);
        }
        command.statuses.push_back(status);
    }
    wire::Writer writer(command.body);
    wire::encode_statuses(command.statuses, writer);
    command.finish(wire::Status::kOk);
    return true;
}

void Machine::drop_put(PutIndex index, ReplicaEvent event, Effects& effects,
                       std::vector<wire::ReplicaId>* retired) {
    const Put put = puts_.at(index);
    const Object& object = table_.object(put.record);
    const std::uint64_t subject = table_.hash(object.tenant, object.key());
    for (std::size_t i = 0; i < put.replica_count; ++i) {
        const ReplicaPosition replica{put.replicas[i], bytes_on(put.replicas[i].segment, put.size)};
        const bool retires = end_replica(replica, ReplicaStatus::kUnfinished, event, subject, effects);
        if (retires && retired != nullptr) retired->push_back(put.replicas[i].replica);
    }
    forget_put(index);
    if (object.is_visible()) return;
    note_end(subject, event);
    erase_record(put.record);
}

void Machine::forget_put(PutIndex index) {
    const Put& put = puts_.at(index);
    Object& object = table_.object(put.record);
    object.flags = static_cast<std::uint8_t>(object.flags & ~kHasPut);
    Session* owner = sessions_.find(put.session);
    if (owner == nullptr) owner = sessions_.find_ending(put.session);
    assert(owner != nullptr);
    puts_.remove(index, *owner);
}

}  // namespace mooncake::metadata
