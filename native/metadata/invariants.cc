// What must hold after every step, recomputed from the tables. Slow on purpose: nothing here trusts a
// counter.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "metadata/machine.h"
#include "wire/range_bytes.h"

namespace mooncake::metadata {

namespace {

std::string differs(const std::string& what, std::uint64_t counted, std::uint64_t recomputed) {
    return what + ": counted " + std::to_string(counted) + ", recomputed " + std::to_string(recomputed);
}

std::vector<Ref> all_records(const KeyTable& table) {
    std::vector<Ref> refs;
    const std::uint64_t rest = table.scan(0, ~std::size_t{0}, ~std::size_t{0}, refs);
    return rest == 0 ? refs : std::vector<Ref>{};
}

}  // namespace

std::string Machine::broken_invariant() const {
    for (const auto& check :
         {&Machine::broken_accounting, &Machine::broken_objects, &Machine::broken_orders,
          &Machine::broken_puts, &Machine::broken_copies, &Machine::broken_held, &Machine::broken_tasks}) {
        const std::string broken = (this->*check)();
        if (!broken.empty()) return broken;
    }
    return {};
}

// Bytes and counts of every segment are the sums over its replicas, and the counters of objects are exact.
std::string Machine::broken_accounting() const {
    struct Sums {
        std::array<std::uint64_t, kReplicaStatuses> bytes{}, counts{};
        std::uint64_t hard = 0, soft = 0, promised = 0;
        std::uint64_t ended = 0, listed = 0;
    };
    std::vector<Sums> sums(segments_.slot_count());
    const auto add = [&](SegmentIndex index, ReplicaStatus status, std::uint64_t bytes) {
        sums[index].bytes[static_cast<std::size_t>(status)] += bytes;
        ++sums[index].counts[static_cast<std::size_t>(status)];
    };
    std::uint64_t visible = 0, hard = 0, soft = 0, ttl = 0, value_bytes = 0;
    for (const Ref ref : all_records(table_)) {
        const Object& object = table_.object(ref);
        if (!object.is_visible()) continue;
        ++visible;
        value_bytes += object.size;
        hard += object.has(kHardPin);
        soft += object.has(kSoftPin);
        ttl += ttl_until_ms(object) != 0;
        for (std::size_t i = 0; i < object.replica_count; ++i) {
            const SegmentIndex index = placed(object, i).segment;
            const std::uint64_t bytes = bytes_on(index, object.size);
            add(index, ReplicaStatus::kLive, bytes);
            if (object.has(kHardPin)) sums[index].hard += bytes;
            if (object.has(kSoftPin)) sums[index].soft += bytes;
        }
    }
    for (std::size_t slot = 1; slot < puts_.slot_count(); ++slot) {
        const Put& put = puts_.at(static_cast<PutIndex>(slot));
        for (std::size_t i = 0; put.put_id != 0 && i < put.replica_count; ++i) {
            add(put.replicas[i].segment, ReplicaStatus::kUnfinished,
                bytes_on(put.replicas[i].segment, put.size));
        }
    }
    for (const auto& copy : copies_.all()) {
        add(copy.target.segment, ReplicaStatus::kCopying, bytes_on(copy.target.segment, copy.size));
    }
    wire::ReplicaId lost = 0;
    retiring_.visit_all([&](wire::ReplicaId replica, const Retiring::Entry& entry) {
        add(entry.segment, ReplicaStatus::kRetiring, entry.bytes);
        if ((entry.is_confirmed == 0) != retiring_.is_linked(replica)) lost = replica;
        if (!entry.is_tombstone) return;
        ++sums[entry.segment].ended;
        sums[entry.segment].listed += segments_.at(entry.segment).ended.find(replica) != nullptr;
    });
    if (lost != 0) return "retiring replica " + std::to_string(lost) + " is not found by its key";
    for (const auto& promise : promises_) {
        if (segments_.at(promise.segment).id == promise.segment_id)
            sums[promise.segment].promised += promise.bytes;
    }

    if (segments_.dram_totals() != segments_.summed_dram()) {
        return differs("bytes used in the pool", segments_.dram_totals().used_bytes,
                       segments_.summed_dram().used_bytes);
    }
    for (std::size_t i = 0; i < segments_.slot_count(); ++i) {
        const Segment& segment = segments_.at(static_cast<SegmentIndex>(i));
        const std::string where = "segment " + std::to_string(segment.id);
        for (std::size_t status = 0; status < kReplicaStatuses; ++status) {
            const std::string what = where + ", status " + std::to_string(status);
            if (segment.bytes[status] != sums[i].bytes[status]) {
                return differs(what + " bytes", segment.bytes[status], sums[i].bytes[status]);
            }
            if (segment.counts[status] != sums[i].counts[status]) {
                return differs(what + " replicas", segment.counts[status], sums[i].counts[status]);
            }
        }
        if (segment.ended_count != sums[i].ended) {
            return differs(where + " replicas that ended for good", segment.ended_count, sums[i].ended);
        }
        if (segment.ended.size() != sums[i].listed) {
            return differs(where + " of those listed", segment.ended.size(), sums[i].listed);
        }
        if (segment.ended_count > segment.ended.size() && segment.ended_floor == 0) {
            return where + ": replicas ended for good are neither listed nor below a floor";
        }
        if (segment.hard_pinned_bytes != sums[i].hard) {
            return differs(where + " hard-pinned bytes", segment.hard_pinned_bytes, sums[i].hard);
        }
        if (segment.soft_pinned_bytes != sums[i].soft) {
            return differs(where + " soft-pinned bytes", segment.soft_pinned_bytes, sums[i].soft);
        }
        if (!segment.is_mounted()) continue;
        if (segment.promised_bytes != sums[i].promised) {
            return differs(where + " promised bytes", segment.promised_bytes, sums[i].promised);
        }
        if (segment.charged_bytes() > segment.capacity_bytes) {
            return where + ": " + std::to_string(segment.charged_bytes()) + " bytes charged of " +
                   std::to_string(segment.capacity_bytes);
        }
    }
    if (visible != visible_count_) return differs("visible objects", visible_count_, visible);
    if (hard != hard_pinned_count_) return differs("hard-pinned objects", hard_pinned_count_, hard);
    if (soft != soft_pinned_count_) return differs("soft-pinned objects", soft_pinned_count_, soft);
    if (ttl != ttl_count_) return differs("objects with a TTL", ttl_count_, ttl);
    if (value_bytes != value_bytes_) return differs("bytes of values", value_bytes_, value_bytes);
    return {};
}

// Every record is found by its key, has a value or a put, and no replica_id is in two places.
std::string Machine::broken_objects() const {
    const auto refs = all_records(table_);
    if (refs.size() != table_.size()) return differs("records", table_.size(), refs.size());
    std::map<std::uint32_t, std::uint64_t> uses;
    std::set<wire::ReplicaId> replicas;
    std::string twice;
    const auto note = [&](wire::ReplicaId replica) {
        if (replica == 0 || !replicas.insert(replica).second) twice = "replica " + std::to_string(replica);
    };
    for (const Ref ref : refs) {
        const Object& object = table_.object(ref);
        const std::string key(object.key());
        ++uses[object.tenant];
        if (table_.find(table_.hash(object.tenant, key), object.tenant, key) != ref) {
            return "the record of key '" + key + "' is not found by it";
        }
        if (!object.is_visible() && !object.has(kHasPut)) return "key '" + key + "' has no value and no put";
        if (object.is_visible() != (object.replica_count > 0)) {
            return "key '" + key + "' is visible without a replica, or has one without being visible";
        }
        if (object.has(kHasPut) != (puts_.find_record(ref) != 0)) {
            return "key '" + key + "' and its unfinished put disagree";
        }
        for (std::size_t i = 0; i < object.replica_count; ++i) note(placed(object, i).replica);
    }
    for (std::size_t slot = 1; slot < puts_.slot_count(); ++slot) {
        const Put& put = puts_.at(static_cast<PutIndex>(slot));
        for (std::size_t i = 0; put.put_id != 0 && i < put.replica_count; ++i) note(put.replicas[i].replica);
    }
    for (const auto& copy : copies_.all()) note(copy.target.replica);
    retiring_.visit_all([&](wire::ReplicaId replica, const Retiring::Entry&) { note(replica); });
    if (!twice.empty()) return twice + " is in two places";
    sessions_.visit_all([&](const Session& session) { ++uses[session.tenant]; });
    for (const auto tenant : tenants_.all()) {
        if (tenants_.uses(tenant) != uses[tenant]) {
            return differs("uses of tenant " + tenants_.name(tenant), tenants_.uses(tenant), uses[tenant]);
        }
    }
    return {};
}

// Each live replica on a mounted segment is in that segment's order exactly once, hard-pinned and guarded
// ones in none.
std::string Machine::broken_orders() const {
    std::map<std::pair<SegmentIndex, bool>, std::vector<Ref>> expected;
    for (const Ref ref : all_records(table_)) {
        const Object& object = table_.object(ref);
        if (object.has(kHardPin) || object.has(kGuarded)) continue;
        for (std::size_t i = 0; i < object.replica_count; ++i) {
            expected[{placed(object, i).segment, object.has(kSoftPin)}].push_back(ref);
        }
    }
    for (const auto index : segments_.mounted()) {
        const Segment& segment = segments_.at(index);
        for (const bool soft : {false, true}) {
            const EvictionOrder& order = soft ? *segment.soft_order : *segment.order;
            auto named = order.named(table_);
            auto& wanted = expected[{index, soft}];
            std::sort(named.begin(), named.end());
            std::sort(wanted.begin(), wanted.end());
            const std::string what = std::string(soft ? "soft-pinned" : "eviction") + " order of segment " +
                                     std::to_string(segment.id);
            if (named != wanted) return differs(what, named.size(), wanted.size());
            if (order.live_count() != wanted.size()) {
                return differs(what + ", its count", order.live_count(), wanted.size());
            }
        }
    }
    return {};
}

// The table of unfinished puts, its order by put_id and the sessions' lists name the same puts.
std::string Machine::broken_puts() const {
    std::size_t linked = 0;
    wire::PutId previous = 0;
    for (PutIndex index = puts_.oldest(); index != 0; index = puts_.at(index).newer) {
        const Put& put = puts_.at(index);
        if (put.put_id <= previous) return "put " + std::to_string(put.put_id) + " is out of order";
        previous = put.put_id;
        ++linked;
        if (puts_.find(put.put_id) != index || puts_.find_record(put.record) != index) {
            return "put " + std::to_string(put.put_id) + " is not found by its id and record";
        }
        if (settled_id() >= put.put_id) return "put " + std::to_string(put.put_id) + " is called settled";
    }
    if (linked != puts_.size()) return differs("unfinished puts", puts_.size(), linked);
    std::size_t owned = 0;
    std::string foreign;
    sessions_.visit_all([&](const Session& session) {
        for (PutIndex index = session.put_head; index != 0; index = puts_.at(index).session_next) {
            ++owned;
            if (puts_.at(index).session != session.id) foreign = std::to_string(puts_.at(index).put_id);
        }
    });
    if (!foreign.empty()) return "put " + foreign + " is in another session's list";
    if (owned != linked) return differs("puts in the lists of sessions", owned, linked);
    return {};
}

// Each copy is of the value that its record shows, onto a segment that has none of it; its object, and no
// other, is guarded.
std::string Machine::broken_copies() const {
    if (copies_.size() > options_.copies_max) return differs("copies", options_.copies_max, copies_.size());
    std::size_t guarded = 0;
    for (const Ref ref : all_records(table_)) guarded += table_.object(ref).has(kGuarded);
    if (guarded != copies_.size()) return differs("guarded objects", guarded, copies_.size());
    wire::ReplicaId previous = 0;
    for (const auto& copy : copies_.all()) {
        const std::string what = "the copy " + std::to_string(copy.target.replica);
        const Object& object = table_.object(copy.record);
        if (copy.target.replica <= previous) return what + " is out of order";
        previous = copy.target.replica;
        if (object.put_id != copy.put_id || object.size != copy.size) return what + " is of another value";
        if (!object.has(kGuarded)) return what + " has no guard";
        if (!segments_.at(copy.target.segment).is_mounted()) return what + " goes to no segment of the pool";
        if (is_on(object, copy.target.segment)) return what + " goes where the value lies";
        if (settled_id() >= copy.target.replica) return what + " is called settled";
    }
    return {};
}

// A task that has not ended waits for its turn, or for a copy of its own.
std::string Machine::broken_tasks() const {
    std::size_t unfinished = 0;
    for (const auto& [id, task] : tasks_.all()) unfinished += task.is_unfinished();
    if (unfinished != tasks_.unfinished_count()) {
        return differs("unfinished tasks", unfinished, tasks_.unfinished_count());
    }
    std::size_t copying = 0;
    for (const auto& copy : copies_.all()) {
        if (copy.task == 0) continue;
        ++copying;
        const Task* task = tasks_.find(copy.task);
        if (task == nullptr || !task->is_unfinished()) {
            return "the copy " + std::to_string(copy.target.replica) + " is of no unfinished task";
        }
    }
    if (copying + tasks_.waiting_count() != unfinished) {
        return differs("tasks that wait or copy", unfinished, copying + tasks_.waiting_count());
    }
    if (unfinished > options_.tasks_pending_max) {
        return differs("unfinished tasks", options_.tasks_pending_max, unfinished);
    }
    return {};
}

// What each node is known to hold, counted anew.
std::string Machine::broken_held() const {
    struct Held {
        wire::InventoryTotals up_to_mark, later;
        std::uint64_t unsure = 0;
    };
    std::vector<Held> recomputed(segments_.slot_count());
    const auto add = [&](SegmentIndex index, wire::ReplicaId replica) {
        Held& held = recomputed[index];
        (replica <= segments_.at(index).mark ? held.up_to_mark : held.later).add(replica);
    };
    for (const Ref ref : all_records(table_)) {
        const Object& object = table_.object(ref);
        for (std::size_t i = 0; i < object.replica_count; ++i) {
            add(placed(object, i).segment, placed(object, i).replica);
        }
    }
    retiring_.visit_all([&](wire::ReplicaId replica, const Retiring::Entry& entry) {
        if (entry.is_confirmed != 0) return;
        if (entry.was_visible != 0) add(entry.segment, replica);
        recomputed[entry.segment].unsure += entry.was_visible == 0;
    });
    std::size_t orphans = 0;
    for (std::size_t i = 0; i < segments_.slot_count(); ++i) {
        const Segment& segment = segments_.at(static_cast<SegmentIndex>(i));
        const std::string where = "segment " + std::to_string(segment.id);
        orphans += segment.orphans.size();
        if (segment.held != recomputed[i].up_to_mark) {
            return differs(where + " held up to its mark", segment.held.count,
                           recomputed[i].up_to_mark.count);
        }
        if (segment.held_later != recomputed[i].later) {
            return differs(where + " held above it", segment.held_later.count, recomputed[i].later.count);
        }
        if (segment.unsure_count != recomputed[i].unsure) {
            return differs(where + " perhaps held", segment.unsure_count, recomputed[i].unsure);
        }
    }
    if (orphans != orphan_count_) return differs("orphans", orphan_count_, orphans);
    return {};
}

}  // namespace mooncake::metadata
