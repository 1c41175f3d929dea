// exists, match_prefix, lookup, touch, release: one walk over the keys, one answer each.
#include <algorithm>

#include "metadata/machine.h"
#include "metadata/probe.h"

namespace mooncake::metadata {

bool Machine::read_keys(State& command, Effects& effects) {
    const auto& request = std::get<wire::KeysRequest>(command.message);
    if (!command.cursor) {
        command.cursor.emplace(request.keys);
        const std::size_t count = request.keys.count();
        if (command.verb == wire::Verb::kLookup) {
            command.found.reserve(count);
            command.places.reserve(count);
        } else if (command.verb != wire::Verb::kMatchPrefix && command.verb != wire::Verb::kWhy) {
            command.statuses.reserve(count);
        }
    }
    const std::uint32_t tenant = sessions_.find(command.prefix.session)->tenant;
    bool missed = false;
    // Somebody means to use it, and does not only look or give it back.
    const bool is_wanted = command.verb != wire::Verb::kRelease && command.verb != wire::Verb::kWhy &&
                           (command.prefix.flags & wire::kWithoutHold) == 0;
    accesses_.clear();
    accessed_.clear();
    const std::size_t first = command.cursor->position();
    probe_keys(command, tenant, options_.keys_a_step_max, [&](std::string_view key, Ref ref) {
        const wire::Status status = read_one(command, key, ref, effects);
        if (is_wanted && wire::is_valid_key(key)) want(key, tenant, wire::ok(status) ? ref : 0);
        if (!wire::ok(status)) ++command.failed_items;
        if (command.verb != wire::Verb::kMatchPrefix) return true;
        if (wire::ok(status)) {
            ++command.match.length;
        } else {
            command.match.miss = status;
            missed = true;
        }
        return !missed;
    });
    tell_wanted(first, request.keys.count());
    if (!command.cursor->done() && !missed) return false;

    wire::Writer writer(command.body);
    if (command.verb == wire::Verb::kMatchPrefix) {
        writer.put(command.match);
    } else if (command.verb == wire::Verb::kLookup) {
        command.body.reserve(sizeof(std::uint64_t) + command.found.size() * sizeof(wire::LookupRecord) +
                             command.places.size() * sizeof(wire::ReplicaPlace));
        writer.put(static_cast<std::uint32_t>(command.found.size()));
        writer.put(std::uint32_t{0});
        writer.array(std::span<const wire::LookupRecord>(command.found));
        writer.array(std::span<const wire::ReplicaPlace>(command.places));
    } else if (command.verb == wire::Verb::kWhy) {
        wire::encode_why_reply(command.whys, writer);
    } else {
        wire::encode_statuses(command.statuses, writer);
    }
    command.finish(wire::Status::kOk);
    return true;
}

wire::Status Machine::read_one(State& command, std::string_view key, Ref ref, Effects& effects) {
    wire::Status status = wire::Status::kOk;
    if (!wire::is_valid_key(key)) {
        status = wire::Status::kInvalidKey;
    } else if (ref == 0 || !freshen(ref, effects)) {
        status = absent();
    } else if (!table_.object(ref).is_visible()) {
        status = wire::Status::kNotReady;
    } else if (command.verb != wire::Verb::kRelease && !is_reachable(table_.object(ref), command.avoid)) {
        status = wire::Status::kUnreachable;
    }
    if (command.verb == wire::Verb::kLookup) {
        if (wire::ok(status)) {
            lookup_one(command, table_.object(ref));
        } else {
            if ((command.prefix.flags & wire::kWithoutHold) == 0) {
                count_miss(status, key, sessions_.find(command.prefix.session)->tenant);
            }
            command.found.push_back({status, 0, 0, 0, 0, 0});
        }
        return status;
    }
    if (command.verb == wire::Verb::kWhy) {
        const std::uint32_t tenant = sessions_.find(command.prefix.session)->tenant;
        wire::WhyRecord record = explain(status, key, tenant);
        if (record.reason == wire::Absence::kNeverStored && command.key_count() <= kKeysAskedOfTenants &&
            is_another_tenants(key, tenant)) {
            record.reason = wire::Absence::kOtherTenant;
        }
        command.whys.push_back(record);
        return status;
    }
    if (command.verb != wire::Verb::kMatchPrefix) command.statuses.push_back(status);
    if (!wire::ok(status)) return status;
    Object& object = table_.object(ref);
    if (command.verb == wire::Verb::kRelease) {
        release_lease(ref, object);
    } else if ((command.prefix.flags & wire::kWithoutHold) == 0) {
        const std::uint64_t until = now_ms_ + options_.exists_hold_ms;
        if (command.verb != wire::Verb::kTouch && until > object.hold_until_ms) object.hold_until_ms = until;
        if ((command.prefix.flags & wire::kReadBefore) != 0) count_reads(command, object);
    }
    return status;
}

void Machine::lookup_one(State& command, Object& object) {
    const bool is_read = (command.prefix.flags & wire::kWithoutHold) == 0;
    if (is_read) lease(object);
    std::uint8_t count = 0;
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        const Placed one = placed(object, i);
        const wire::SegmentId segment = segments_.at(one.segment).id;
        if (command.avoid.contains(segment)) continue;
        command.places.push_back({one.replica, segment});
        ++count;
    }
    const auto lease_ms = is_read ? static_cast<std::uint32_t>(options_.lease_ttl_ms) : 0;
    const auto location_ttl = is_read ? location_ttl_of(object) : std::uint8_t{0};
    command.found.push_back({wire::Status::kOk, count, location_ttl, lease_ms, object.put_id, object.size});
}

// No longer than the value lives.
std::uint8_t Machine::location_ttl_of(const Object& object) const {
    std::uint64_t ttl_ms = options_.location_ttl_ms;
    if (const auto until = ttl_until_ms(object); until != 0) ttl_ms = std::min(ttl_ms, until - now_ms_);
    return static_cast<std::uint8_t>(std::min<std::uint64_t>(ttl_ms / wire::kLocationTtlUnitMs, 0xFF));
}

void Machine::lease(Object& object) {
    if (!object.is_leased(now_ms_)) object.lease_count = 0;
    if (object.lease_count < 0xFFFF) ++object.lease_count;
    object.lease_until_ms = now_ms_ + options_.lease_ttl_ms;
    ++counters_.lookup_hits;
    counters_.lookup_hit_bytes += object.size;
}

// Reads that asked nothing here: hits all the same.
void Machine::count_reads(const State& command, const Object& object) {
    const auto& request = std::get<wire::KeysRequest>(command.message);
    const std::uint64_t count = request.read_count(command.statuses.size() - 1);
    counters_.lookup_hits += count;
    counters_.lookup_hit_bytes += count * object.size;
    counters_.remembered_hits += count;
}

void Machine::release_lease(Ref ref, Object& object) {
    if (object.lease_count == 0 || --object.lease_count > 0) return;
    object.lease_until_ms = 0;
    if (object.kept_until_ms() > now_ms_) return;
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        if (auto* order = order_of(object, placed(object, i).segment)) order->released(ref, object);
    }
}

bool Machine::is_reachable(const Object& object, const wire::AvoidList& avoid) const {
    if (avoid.count() == 0) return true;
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        if (!avoid.contains(segments_.at(placed(object, i).segment).id)) return true;
    }
    return false;
}

// A first reign has no nodes that could still come with the key.
wire::Status Machine::absent() const {
    return is_rebuilding() && epoch_ > 1 ? wire::Status::kRebuilding : wire::Status::kObjectNotFound;
}

void Machine::count_miss(wire::Status status, std::string_view key, std::uint32_t tenant) {
    if (status == wire::Status::kInvalidKey) return;
    ++counters_.misses[static_cast<std::size_t>(explain(status, key, tenant).reason)];
}

wire::WhyRecord Machine::explain(wire::Status status, std::string_view key, std::uint32_t tenant) const {
    wire::WhyRecord record{status, wire::Absence::kPresent, 0, 0, 0};
    switch (status) {
        case wire::Status::kOk:
            return record;
        case wire::Status::kNotReady:
            record.reason = wire::Absence::kNotReady;
            return record;
        case wire::Status::kUnreachable:
            record.reason = wire::Absence::kUnreachable;
            return record;
        default:
            break;
    }
    // What is known to have ended is not still on its way from a node.
    if (const auto ended = departures_.find(table_.hash(tenant, key))) {
        record.reason = ended->reason;
        record.ended_ms_ago = now_ms_ - std::min(now_ms_, ended->at_ms);
        return record;
    }
    record.reason =
        status == wire::Status::kRebuilding ? wire::Absence::kRebuilding : wire::Absence::kNeverStored;
    return record;
}

bool Machine::is_another_tenants(std::string_view key, std::uint32_t tenant) const {
    for (const auto other : tenants_.some(kTenantsAsked)) {
        const Ref ref = other == tenant ? 0 : table_.find(table_.hash(other, key), other, key);
        if (ref != 0 && is_listed(table_.object(ref))) return true;
    }
    return false;
}

}  // namespace mooncake::metadata
