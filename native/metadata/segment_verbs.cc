// Segments: mount, unmount, list, and how one leaves the pool.
#include <algorithm>
#include <utility>

#include "metadata/machine.h"

namespace mooncake::metadata {

namespace {

bool is_printable(std::string_view name) {
    return std::none_of(name.begin(), name.end(),
                        [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

bool is_valid(const wire::SegmentDescription& segment) {
    return (segment.tier == wire::Tier::kDram || segment.tier == wire::Tier::kSsd) &&
           segment.capacity_bytes > 0 && segment.capacity_bytes <= kSegmentBytesMax &&
           !segment.name.empty() && is_printable(segment.name) && is_printable(segment.host_id) &&
           std::all_of(segment.endpoints.begin(), segment.endpoints.end(),
                       [](std::string_view endpoint) { return !endpoint.empty() && is_printable(endpoint); });
}

bool shares_endpoint(const Segment& segment, const wire::SegmentDescription& other) {
    return std::any_of(segment.endpoints.begin(), segment.endpoints.end(), [&](const std::string& endpoint) {
        return std::find(other.endpoints.begin(), other.endpoints.end(), endpoint) != other.endpoints.end();
    });
}

}  // namespace

bool Machine::mount(State& command, Effects& effects) {
    const auto& request = std::get<wire::Mount>(command.message);
    const wire::MountOrigin& origin = request.origin;
    if (origin.known_epoch >= wire::kEpochMax) {
        command.finish(wire::Status::kInvalidParams,
                       "known_epoch " + std::to_string(origin.known_epoch) + " leaves no later reign");
        return true;
    }
    follow_epoch(origin.known_epoch, origin.known_master);
    Session& session = *sessions_.find(command.prefix.session);
    std::vector<wire::MountAnswer> answers;
    for (const auto& segment : request.segments) {
        answers.push_back(mount_one(session, segment, origin, effects));
        if (!wire::ok(answers.back().status)) ++command.failed_items;
    }
    wire::Writer writer(command.body);
    wire::encode_mount_reply(answers, writer);
    command.finish(wire::Status::kOk);
    return true;
}

// A node that has followed a later reign, or the same number under another master, would refuse this one's
// commands: take a later number before anything is granted there.
void Machine::follow_epoch(std::uint64_t known_epoch, const wire::Uuid& known_master) {
    if (known_epoch < epoch_ || (known_epoch == epoch_ && known_master == master_)) return;
    // Nothing was placed yet: replicas with ids that look like this master's own are another's.
    if (!has_placed_) first_epoch_ = known_epoch + 1;
    begin_epoch(known_epoch + 1);
}

wire::MountAnswer Machine::mount_one(Session& session, const wire::SegmentDescription& segment,
                                     const wire::MountOrigin& origin, Effects& effects) {
    const bool with_inventory = (origin.flags & wire::kMountWithInventory) != 0;
    if (!is_valid(segment)) return {wire::Status::kInvalidParams, 0};
    if (const SegmentIndex* found = segments_.find_name(segment.name);
        found != nullptr && segments_.at(*found).incarnation == segment.incarnation) {
        Segment& mounted = segments_.at(*found);
        if (mounted.owner != session.id) return {wire::Status::kSegmentAlreadyExists, 0};
        if (mounted.capacity_bytes != segment.capacity_bytes || mounted.tier != segment.tier) {
            return {wire::Status::kInvalidParams, 0};
        }
        mounted.endpoints.assign(segment.endpoints.begin(), segment.endpoints.end());
        effects.push_back({Effect::Kind::kMounted, mounted.id, 0, session.id});
        return {wire::Status::kOk, mounted.id};
    }
    // Too late: removes were forgotten since. The node gives up what it holds and mounts without.
    const bool is_late = !is_rebuilding() || tombstones_.is_too_late(origin.known_epoch, segment.incarnation);
    if (with_inventory) tombstones_.met_epoch(origin.known_epoch);
    if (with_inventory && is_late) return {wire::Status::kStaleEpoch, 0};
    // An earlier life of the same segment, or of the process behind one of its endpoints, is over.
    const std::vector<SegmentIndex> before = segments_.mounted();
    for (const auto index : before) {
        const Segment& other = segments_.at(index);
        const bool older = other.incarnation != segment.incarnation &&
                           (other.name == segment.name || shares_endpoint(other, segment));
        if (older) expel(index, wire::EventReason::kReplaced, effects);
    }
    if (segments_.mounted().size() + segments_.expelled_count() >= options_.segments_max) {
        return {wire::Status::kBusy, 0};
    }
    const wire::SegmentId id = next_id();
    const SegmentIndex index = segments_.mount(id, session.id, segment, !with_inventory);
    if (with_inventory) segments_.at(index).inventory_epoch = origin.known_epoch;
    ++counters_.segments_mounted;
    note_segment(wire::EventKind::kSegmentMounted, wire::EventReason::kNone,
                 segments_.at(*segments_.find(id)));
    effects.push_back({Effect::Kind::kMounted, id, 0, session.id});
    effects.push_back({Effect::Kind::kSpaceReturned, id, 0, 0});
    is_search_due_ = std::exchange(lacks_segments_, false) || is_search_due_;
    return {wire::Status::kOk, id};
}

bool Machine::has_mounted(wire::SessionId session, const wire::Mount& mount) const {
    return std::all_of(mount.segments.begin(), mount.segments.end(), [&](const auto& segment) {
        const SegmentIndex* found = segments_.find_name(segment.name);
        if (found == nullptr) return false;
        const Segment& mounted = segments_.at(*found);
        return mounted.owner == session && mounted.incarnation == segment.incarnation &&
               std::equal(mounted.endpoints.begin(), mounted.endpoints.end(), segment.endpoints.begin(),
                          segment.endpoints.end());
    });
}

bool Machine::unmount(State& command, Effects& effects) {
    const auto& request = std::get<wire::SegmentIds>(command.message);
    std::vector<wire::Status> statuses;
    for (const auto id : request.ids) {
        const SegmentIndex* index = segments_.find(id);
        if (index == nullptr) {
            statuses.push_back(wire::Status::kSegmentNotFound);
        } else if (segments_.at(*index).owner != command.prefix.session) {
            statuses.push_back(wire::Status::kIllegalClient);
        } else {
            expel(*index, wire::EventReason::kAsked, effects);
            statuses.push_back(wire::Status::kOk);
        }
    }
    wire::Writer writer(command.body);
    wire::encode_statuses(statuses, writer);
    command.finish(wire::Status::kOk);
    return true;
}

// Out of the pool at once: nothing is read or placed there any more. What still names it goes bit by bit,
// with tick or when a request meets it.
void Machine::expel(SegmentIndex index, wire::EventReason reason, Effects& effects) {
    const Segment& segment = segments_.at(index);
    note_segment(wire::EventKind::kSegmentLeft, reason, segment);
    // It may come back to a later master with what it held, and was not told what has ended since.
    if (reason != wire::EventReason::kAsked) {
        note_expelled(segment);
        if (options_.location_ttl_ms != 0)
            effects.push_back({Effect::Kind::kUnheard, segment.id, 0, segment.owner});
    }
    effects.push_back({Effect::Kind::kExpel, segment.id, 0, segment.owner});
    ++counters_.segments_expelled;
    orphan_count_ -= segment.orphans.size();
    segments_.expel(index);
    abandon_copies_on(index, effects);
}

bool Machine::segments(State& command) {
    const auto& request = std::get<wire::SegmentIds>(command.message);
    std::vector<wire::SegmentInfo> answers;
    const auto add = [&](const Segment& segment) {
        answers.push_back({wire::Status::kOk, segment.id, segment.owner, segment.charged_bytes(),
                           segment.retiring_bytes(), segment.replica_count(), segment.description()});
    };
    if (request.ids.empty()) {
        for (const auto index : segments_.mounted()) add(segments_.at(index));
    }
    for (const auto id : request.ids) {
        if (const SegmentIndex* index = segments_.find(id)) {
            add(segments_.at(*index));
        } else {
            wire::SegmentInfo gone;
            gone.status = wire::Status::kSegmentNotFound;
            gone.segment = id;
            answers.push_back(gone);
        }
    }
    wire::Writer writer(command.body);
    wire::encode_segments_reply(answers, writer);
    command.finish(wire::Status::kOk);
    return true;
}

}  // namespace mooncake::metadata
