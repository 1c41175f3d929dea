// Reconcile: what a node holds and what the index believes of it, compared while both run.
//
// Each side keeps a running count and checksum of the replicas of a segment at or below a mark. A mark is
// taken at the highest id given, and told to the node once no put or copy at or below it is unfinished: from
// then on replicas leave that set only by retires. So a report that counts up to the mark and names the last
// retire carried out must agree to the last bit with what is live here, and what was when it was retired and
// is not confirmed. Where it does not, the node lists what it holds. Only settled ids are ended or forgotten.
#include <algorithm>

#include "metadata/machine.h"

namespace mooncake::metadata {

namespace {

// What is ended in one comparison of what no one knows of; the next one goes on.
constexpr std::size_t kOrphansMax = 65'536;

}  // namespace

void Machine::compare_totals(Session& session, const wire::Report& report) {
    const bool is_of_mark =
        session.mark != 0 && session.told_settled_id == session.mark && report.settled_id == session.mark;
    bool is_differing = false;
    for (const auto& reported : report.segments) {
        const SegmentIndex* index = segments_.find(reported.segment);
        if (index == nullptr || segments_.at(*index).owner != session.id) continue;
        Segment& segment = segments_.at(*index);
        if (is_of_mark && report.last_command_id == session.confirmed_command_id &&
            is_comparable(segment, session)) {
            ++counters_.reconcile_checks;
            if (segment.held != wire::InventoryTotals{reported.sealed_count, reported.sealed_checksum}) {
                ++counters_.reconcile_mismatches;
                segment.differs = true;
                differing_.push_back(segment.id);
                note_segment(wire::EventKind::kSegmentDiffers, wire::EventReason::kNone, segment);
            }
        }
        is_differing = is_differing || segment.differs;
    }
    if (is_differing) return;  // the mark stays until that is settled
    if (session.mark == 0 || is_of_mark) take_mark(session, report);
    if (settled_id() >= session.mark) session.told_settled_id = session.mark;
}

// Nothing there is on its way of which the node's answer alone could tell what became of it.
bool Machine::is_comparable(const Segment& segment, const Session& session) const {
    return segment.mark == session.mark && segment.is_reported && !segment.differs &&
           segment.unsure_count == 0 && segment.orphans.size() == 0;
}

void Machine::take_mark(Session& session, const wire::Report& report) {
    session.mark = wire::make_id(epoch_, counter_);
    for (const auto& reported : report.segments) {
        const SegmentIndex* index = segments_.find(reported.segment);
        if (index == nullptr || segments_.at(*index).owner != session.id) continue;
        Segment& segment = segments_.at(*index);
        segment.mark = session.mark;
        segment.held.add(segment.held_later);
        segment.held_later = {};
    }
}

// A retiring replica is confirmed, freed, or left the pool with its segment.
void Machine::discount_ended(Segment& segment, wire::ReplicaId replica, const Retiring::Entry& entry) {
    if (entry.is_confirmed != 0) return;
    if (entry.was_visible != 0) {
        segment.held_with(replica).remove(replica);
    } else {
        --segment.unsure_count;
    }
}

void Machine::end_orphan(SegmentIndex index, wire::ReplicaId replica, Effects& effects) {
    Segment& segment = segments_.at(index);
    if (segment.orphans.find(replica) == nullptr) {
        segment.orphans.insert(replica, true);
        ++orphan_count_;
    }
    effects.push_back({Effect::Kind::kRetire, segment.id, replica, 0});
}

void Machine::forget_orphan(wire::SessionId node, wire::ReplicaId replica) {
    for (const auto index : segments_.mounted()) {
        Segment& segment = segments_.at(index);
        if (segment.owner == node && segment.orphans.erase(replica)) --orphan_count_;
    }
}

// ---- the comparison

// True: nothing to do now.
bool Machine::go_on_comparing(std::size_t& budget, Effects& effects) {
    if (comparison_.phase == Comparison::Phase::kIdle) begin_comparison();
    if (comparison_.phase == Comparison::Phase::kIdle) return true;
    if (segments_.find(comparison_.segment) == nullptr) {  // it left the pool
        comparison_ = {};
        return differing_.empty();
    }
    switch (comparison_.phase) {
        case Comparison::Phase::kGathering:
            gather_expected(budget);
            return false;
        case Comparison::Phase::kListing:
            if (now_ms_ < comparison_.until_ms) return true;
            ++counters_.comparisons_given_up;
            segments_.at(comparison_.index).differs = false;  // the next report tells again
            comparison_ = {};
            return differing_.empty();
        default:
            forget_ghosts(budget, effects);
            return false;
    }
}

void Machine::begin_comparison() {
    while (!differing_.empty()) {
        const SegmentIndex* index = segments_.find(differing_.front());
        differing_.pop_front();
        if (index == nullptr) continue;
        const Segment& segment = segments_.at(*index);
        comparison_ = {};
        comparison_.phase = Comparison::Phase::kGathering;
        comparison_.number = next_id();
        comparison_.index = *index;
        comparison_.segment = segment.id;
        comparison_.node = segment.owner;
        comparison_.settled_id = segment.mark;
        return;
    }
}

void Machine::gather_expected(std::size_t& budget) {
    if (budget == 0) return;
    scanned_.clear();
    comparison_.search_cursor =
        table_.scan(comparison_.search_cursor, budget, kExaminedAKey * options_.keys_a_step_max, scanned_);
    budget -= std::min(budget, scanned_.size());
    for (const Ref ref : scanned_) {
        const Object& object = table_.object(ref);
        for (std::size_t i = 0; object.is_visible() && i < object.replica_count; ++i) {
            const Placed one = placed(object, i);
            if (one.segment != comparison_.index || one.replica > comparison_.settled_id) continue;
            auto& shard = comparison_.shard_of(one.replica);
            if (shard.find(one.replica) == nullptr) shard.insert(one.replica, {object.put_id, ref, false});
        }
    }
    if (comparison_.search_cursor != 0) return;
    comparison_.phase = Comparison::Phase::kListing;
    comparison_.until_ms = later(options_.client_ttl_ms);
}

// A node's list, or a chunk of it. One of a comparison that is over is late.
bool Machine::holdings(State& command, Effects& effects) {
    const auto& request = std::get<wire::SettledHoldings>(command.message);
    const wire::SessionId node = command.prefix.session;
    sessions_.find(node)->heard_ms = now_ms_;
    if (comparison_.awaits_list_of(node) && comparison_.number == request.comparison &&
        segments_.find(comparison_.segment) != nullptr) {
        comparison_.until_ms = later(options_.client_ttl_ms);
        for (std::size_t done = 0; command.position < request.replicas.size(); ++done) {
            if (done == options_.keys_a_step_max) return false;
            hear_of(request.replicas[command.position++], effects);
        }
        if ((request.flags & wire::kHoldingsLast) != 0) comparison_.phase = Comparison::Phase::kForgetting;
    }
    command.finish(wire::Status::kOk);
    return true;
}

void Machine::hear_of(wire::ReplicaId replica, Effects& effects) {
    if (replica == 0 || replica > comparison_.settled_id) return;
    if (Comparison::Expected* known = comparison_.shard_of(replica).find(replica)) {
        known->is_named = true;
        return;
    }
    // Its retire is under way, or it was told to end it before.
    if (retiring_.find(replica) != nullptr) return;
    const Segment& segment = segments_.at(comparison_.index);
    if (segment.orphans.find(replica) != nullptr || segment.orphans.size() >= kOrphansMax) return;
    ++comparison_.orphans;
    ++counters_.reconcile_orphans;
    end_orphan(comparison_.index, replica, effects);
}

void Machine::forget_ghosts(std::size_t& budget, Effects& effects) {
    while (budget > 0 && comparison_.shard < comparison_.expected.size()) {
        const std::size_t count = std::min<std::size_t>(budget, 64);
        budget -= count;
        comparison_.position = comparison_.expected[comparison_.shard].visit_some(
            comparison_.position, count, [&](wire::ReplicaId replica, const Comparison::Expected& expected) {
                if (!expected.is_named) forget_ghost(replica, expected, effects);
            });
        if (comparison_.position == 0) ++comparison_.shard;
    }
    if (comparison_.shard == comparison_.expected.size()) end_comparison(effects);
}

void Machine::forget_ghost(wire::ReplicaId replica, const Comparison::Expected& expected, Effects& effects) {
    const Ref ref = expected.record;
    if (table_.object(ref).put_id != expected.put_id || !is_held(ref, replica)) return;  // it ended meanwhile
    ++comparison_.ghosts;
    ++counters_.reconcile_ghosts;
    abandon_copy_of(ref, effects);
    if (table_.object(ref).replica_count > 1) {
        drop_replica(ref, {replica, comparison_.index}, ReplicaEvent::kForgotten, effects);
        queue_repair(ref, 0);
    } else {
        ++counters_.lost_keys;
        end_value(ref, ReplicaEvent::kForgotten, effects, nullptr);
    }
}

void Machine::end_comparison(Effects& effects) {
    Segment& segment = segments_.at(comparison_.index);
    segment.differs = false;
    note_segment(wire::EventKind::kSegmentReconciled, wire::EventReason::kNone, segment,
                 comparison_.orphans + comparison_.ghosts);
    if (comparison_.ghosts > 0) effects.push_back({Effect::Kind::kSpaceReturned, segment.id, 0, 0});
    comparison_ = {};
}

}  // namespace mooncake::metadata
