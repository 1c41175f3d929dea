// inspect: what is known of one key, segment or node now, and what the journal remembers of it. Changes
// nothing but what a lookup would find gone; costs a bounded walk, in steps.
#include <algorithm>
#include <map>

#include "metadata/machine.h"

namespace mooncake::metadata {

void Machine::note_pool(wire::EventKind kind, wire::EventReason reason, std::uint64_t number) {
    journal_.add(PoolEvent{now_ms_, kind, reason, 0, 0, number, {}, {}, 0});
}

void Machine::note_session(wire::EventKind kind, wire::EventReason reason, const Session& session) {
    journal_.add(PoolEvent{now_ms_, kind, reason, session.id, 0, 0, session.name, session.host_id, 0});
}

void Machine::note_segment(wire::EventKind kind, wire::EventReason reason, const Segment& segment,
                           std::uint64_t number) {
    journal_.add(PoolEvent{now_ms_, kind, reason, segment.owner, segment.id, number, segment.name,
                           segment.host_id, 0});
}

bool Machine::inspect(State& command, Effects& effects) {
    const auto& request = std::get<wire::Inspect>(command.message);
    const std::uint32_t tenant = sessions_.find(command.prefix.session)->tenant;
    const std::uint64_t hash = table_.hash(tenant, request.name);
    wire::InspectReply reply;
    if (request.subject == wire::Subject::kKey) {
        if (!look_for_copy_events(command, hash)) return false;
        Ref ref = table_.find(hash, tenant, request.name);
        if (ref != 0 && !freshen(ref, effects)) ref = 0;
        describe_key(command, ref, hash, reply);
    } else {
        look_for_pool_events(command, request.name);
        if (request.subject == wire::Subject::kName) describe_segments(request.name, reply);
    }
    describe_events(command, reply);
    wire::Writer writer(command.body);
    wire::encode_inspect_reply(reply, writer);
    command.finish(wire::Status::kOk);
    return true;
}

namespace {

std::size_t events_wanted(const wire::Inspect& request) {
    return request.limit == 0 ? wire::kEventsShownDefault : request.limit;
}

wire::ToldEvent told(const PoolEvent& event, std::uint64_t ms_ago) {
    wire::EventRecord record;
    record.ms_ago = ms_ago;
    record.segment = event.segment;
    record.session = event.session;
    record.number = event.number;
    record.kind = event.kind;
    record.reason = event.reason;
    return {record, event.name};
}

}  // namespace

// From the newest on. True: all were looked at, or enough were found.
bool Machine::look_for_copy_events(State& command, std::uint64_t hash) const {
    const Ring<CopyEvent>& ring = journal_.copies();
    const std::size_t wanted = events_wanted(std::get<wire::Inspect>(command.message));
    std::size_t budget = kExaminedAKey * options_.keys_a_step_max;
    std::uint64_t& position =
        command.story_position ? *command.story_position : command.story_position.emplace(ring.end());
    for (; position > ring.first(); --position) {
        if (budget-- == 0) return false;
        const CopyEvent& event = ring.at(position - 1);
        if (event.subject != CopyEvent::subject_of(hash)) continue;
        if (command.copy_events.size() == wanted) {
            command.has_older_events = true;
            return true;
        }
        command.copy_events.push_back(event);
    }
    return true;
}

// Of a name: events of segments, sessions and hosts of that name, and of the sessions that had such a
// segment.
void Machine::look_for_pool_events(State& command, std::string_view name) const {
    const std::size_t wanted = events_wanted(std::get<wire::Inspect>(command.message));
    std::vector<wire::SessionId> owners;
    const auto is_of_name = [&](const PoolEvent& event) {
        return event.name == name || event.host_id == name;
    };
    if (!name.empty()) {
        journal_.visit_pool([&](const PoolEvent& event) {
            if (event.session != 0 && is_of_name(event)) owners.push_back(event.session);
            return true;
        });
        std::sort(owners.begin(), owners.end());
    }
    journal_.visit_pool([&](const PoolEvent& event) {
        if (!name.empty() && !is_of_name(event) &&
            !std::binary_search(owners.begin(), owners.end(), event.session)) {
            return true;
        }
        command.has_older_events = command.pool_events.size() == wanted;
        if (!command.has_older_events) command.pool_events.push_back(event);
        return !command.has_older_events;
    });
}

void Machine::describe_key(State& command, Ref ref, std::uint64_t hash, wire::InspectReply& reply) const {
    const auto& request = std::get<wire::Inspect>(command.message);
    const std::uint32_t tenant = sessions_.find(command.prefix.session)->tenant;
    wire::Status status = wire::Status::kOk;
    if (ref == 0) {
        status = absent();
    } else if (!table_.object(ref).is_visible()) {
        status = wire::Status::kNotReady;
    } else if (!is_reachable(table_.object(ref), command.avoid)) {
        status = wire::Status::kUnreachable;
    }
    wire::WhyRecord why = explain(status, request.name, tenant);
    if (why.reason == wire::Absence::kNeverStored && is_another_tenants(request.name, tenant)) {
        why.reason = wire::Absence::kOtherTenant;
    }
    wire::KeyRecord key;
    key.status = why.status;
    key.reason = why.reason;
    key.ended_ms_ago = why.ended_ms_ago;
    if (ref != 0 && table_.object(ref).is_visible()) {
        const Object& object = table_.object(ref);
        key.put_id = object.put_id;
        key.size = object.size;
        key.flags = object.has(kHardPin)   ? std::uint8_t{wire::kPutHardPin}
                    : object.has(kSoftPin) ? std::uint8_t{wire::kPutSoftPin}
                                           : std::uint8_t{0};
        key.lease_count = object.is_leased(now_ms_) ? object.lease_count : 0;
        key.lease_ms = key.lease_count > 0 ? left_ms(object.lease_until_ms) : 0;
        key.hold_ms = left_ms(object.hold_until_ms);
        if (object.extra != 0) {
            const Extra& extra = extras_.at<Extra>(object.extra);
            key.soft_pin_ms = object.has(kSoftPin) ? left_ms(extra.soft_pin_until_ms) : 0;
            key.ttl_ms = left_ms(extra.ttl_until_ms);
        }
        for (std::size_t i = 0; i < object.replica_count; ++i) {
            const Placed one = placed(object, i);
            reply.copies.push_back(
                told_copy(one, bytes_on(one.segment, object.size), wire::CopyStatus::kLive));
        }
    }
    if (const PutIndex index = ref == 0 ? 0 : puts_.find_record(ref); index != 0) {
        const Put& put = puts_.at(index);
        key.unfinished_put_id = put.put_id;
        key.unfinished_size = put.size;
        key.unfinished_age_ms = passed_ms(put.started_ms);
        key.unfinished_owner = put.session;
        if (const Session* owner = session_of(put.session)) reply.unfinished_owner_name = owner->name;
        for (std::size_t i = 0; i < put.replica_count; ++i) {
            reply.copies.push_back(told_copy(put.replicas[i], bytes_on(put.replicas[i].segment, put.size),
                                             wire::CopyStatus::kUnfinished));
        }
    }
    if (const Copy* copy = ref == 0 ? nullptr : copies_.find_record(ref); copy != nullptr) {
        reply.copies.push_back(
            told_copy(copy->target, bytes_on(copy->target.segment, copy->size), wire::CopyStatus::kCopying));
    }
    // Nothing else leads from a key to its copies that are on their way out.
    std::vector<wire::ReplicaId> seen;
    for (const auto& event : command.copy_events) {
        const Retiring::Entry* entry = retiring_.find(event.replica);
        if (entry == nullptr || entry->subject != CopyEvent::subject_of(hash)) continue;
        if (std::find(seen.begin(), seen.end(), event.replica) != seen.end()) continue;
        if (reply.copies.size() == wire::kCopiesShownMax) break;
        seen.push_back(event.replica);
        reply.copies.push_back(
            told_copy({event.replica, entry->segment}, entry->bytes, wire::CopyStatus::kRetiring));
    }
    reply.key = key;
}

const Session* Machine::session_of(wire::SessionId id) const {
    const Session* session = sessions_.find(id);
    return session != nullptr ? session : sessions_.find_ending(id);
}

wire::ToldCopy Machine::told_copy(const Placed& replica, std::uint64_t bytes, wire::CopyStatus status) const {
    const Segment& segment = segments_.at(replica.segment);
    wire::CopyRecord record;
    record.replica = replica.replica;
    record.segment = segment.id;
    record.charged_bytes = bytes;
    record.status = status;
    record.tier = segment.tier;
    record.has_left = segment.is_mounted() ? 0 : 1;
    return {record, segment.name, segment.host_id};
}

void Machine::describe_segments(std::string_view name, wire::InspectReply& reply) const {
    for (const auto index : segments_.mounted()) {
        const Segment& segment = segments_.at(index);
        const Session* owner = session_of(segment.owner);
        if (segment.name != name && segment.host_id != name && (owner == nullptr || owner->name != name)) {
            continue;
        }
        if (reply.segments.size() == wire::kSegmentsShownMax) return;
        wire::ToldSegment told;
        told.record.segment = segment.id;
        told.record.owner = segment.owner;
        told.record.capacity_bytes = segment.capacity_bytes;
        told.record.charged_bytes = segment.charged_bytes();
        told.record.retiring_bytes = segment.retiring_bytes();
        told.record.replica_count = segment.replica_count();
        told.record.tier = segment.tier;
        if (segment.is_reported) told.record.flags |= wire::kSegmentTold;
        told.name = segment.name;
        told.host_id = segment.host_id;
        if (!segment.endpoints.empty()) told.endpoint = segment.endpoints.front();
        if (owner != nullptr) {
            told.record.heard_ms_ago = passed_ms(owner->heard_ms);
            told.owner_name = owner->name;
            if (owner->attached) told.record.flags |= wire::kSegmentConnected;
            if (suspects_.is_suspected(owner->id, now_ms_)) told.record.flags |= wire::kSegmentSuspected;
        }
        reply.segments.push_back(told);
    }
}

// The views are into the journal and the command: encode before either changes.
void Machine::describe_events(const State& command, wire::InspectReply& reply) const {
    reply.has_older_events = command.has_older_events;
    if (std::get<wire::Inspect>(command.message).subject != wire::Subject::kKey) {
        reply.dropped_events = journal_.dropped_pool_events();
        journal_.visit_pool([&](const PoolEvent& event) {
            reply.oldest_event_ms_ago = passed_ms(event.at_ms);
            return true;
        });
        for (const auto& event : command.pool_events)
            reply.events.push_back(told(event, passed_ms(event.at_ms)));
        return;
    }
    const Ring<CopyEvent>& ring = journal_.copies();
    reply.dropped_events = journal_.dropped_copy_events();
    if (ring.end() > ring.first()) reply.oldest_event_ms_ago = passed_ms(ring.at(ring.first()).at_ms);
    std::map<wire::SegmentId, std::string_view> names;  // of those that left, as far as they are remembered
    for (const auto& event : command.copy_events) names[event.segment];
    journal_.visit_pool([&](const PoolEvent& event) {
        const auto found = names.find(event.segment);
        if (found != names.end()) found->second = event.name;
        return true;
    });
    for (const auto& event : command.copy_events) {
        wire::EventRecord record;
        record.ms_ago = passed_ms(event.at_ms);
        record.id = event.replica;
        record.segment = event.segment;
        record.kind = static_cast<wire::EventKind>(event.kind);
        reply.events.push_back({record, names[event.segment]});
    }
}

}  // namespace mooncake::metadata
