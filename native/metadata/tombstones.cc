#include "metadata/tombstones.h"

#include <algorithm>

namespace mooncake::metadata {

bool Tombstones::restore(const wire::Tombstones& told, std::uint64_t epoch) {
    // No reign closes one that comes after it: anything else is not from a master.
    if (told.closed_epoch < epoch) closed_epoch_ = std::max(closed_epoch_, told.closed_epoch);
    if (told.epoch < epoch) met_epoch(told.epoch);
    bool fits = true;
    for (const auto& incarnation : told.expelled) {
        if (!is_expelled(incarnation)) fits = note_expelled(incarnation) && fits;
    }
    for (const auto& floor : told.floors) {
        const auto known = std::find_if(floors_.begin(), floors_.end(), [&](const auto& other) {
            return other.incarnation == floor.incarnation;
        });
        if (known != floors_.end()) {
            known->replica = std::max(known->replica, floor.replica);
        } else if (floors_.size() < wire::kExpelledMax) {
            floors_.push_back(floor);
        } else {
            fits = false;
        }
    }
    for (const auto replica : told.replicas) {
        if (replica == 0 || restored_.find(replica) != nullptr) continue;
        if (restored_.size() == wire::kTombstonesMax / 2) return false;
        restored_.insert(replica, true);
    }
    for (const auto& key : told.keys) fits = note_key(key.digest, key.put_id) != Noted::kNoRoom && fits;
    has_restored_ = has_restored_ || told != wire::Tombstones{};
    return fits;
}

Tombstones::Noted Tombstones::note_key(std::uint64_t digest, wire::PutId put_id) {
    digest = std::max<std::uint64_t>(digest, 1);  // 0 marks an empty slot
    if (wire::PutId* known = keys_.find(digest)) {
        if (*known >= put_id) return Noted::kKnown;
        *known = put_id;
        return Noted::kNew;
    }
    if (keys_.size() == wire::kTombstonesMax) return Noted::kNoRoom;
    keys_.insert(digest, put_id);
    return Noted::kNew;
}

bool Tombstones::note_expelled(const wire::Uuid& incarnation) {
    const bool fits = expelled_.size() < wire::kExpelledMax;
    if (!fits) expelled_.pop_front();
    expelled_.push_back(incarnation);
    return fits;
}

void Tombstones::close(std::uint64_t epoch) {
    closed_epoch_ = std::max(closed_epoch_, epoch);
    floors_.clear();
    restored_ = {};
    keys_ = {};
    has_restored_ = false;
}

bool Tombstones::is_expelled(const wire::Uuid& incarnation) const {
    return std::find(expelled_.begin(), expelled_.end(), incarnation) != expelled_.end();
}

bool Tombstones::is_too_late(std::uint64_t known_epoch, const wire::Uuid& incarnation) const {
    return known_epoch < closed_epoch_ || is_expelled(incarnation);
}

bool Tombstones::is_dead(wire::ReplicaId replica, const wire::Uuid& incarnation) const {
    if (restored_.find(replica) != nullptr) return true;
    return std::any_of(floors_.begin(), floors_.end(), [&](const auto& floor) {
        return replica <= floor.replica && floor.incarnation == incarnation;
    });
}

bool Tombstones::is_dead_key(std::uint64_t digest, wire::PutId put_id) const {
    const wire::PutId* known = keys_.find(std::max<std::uint64_t>(digest, 1));
    return known != nullptr && put_id <= *known;
}

wire::Tombstones Tombstones::list(wire::Tombstones segments_part) const {
    wire::Tombstones all = std::move(segments_part);
    all.closed_epoch = closed_epoch_;
    all.expelled.assign(expelled_.begin(), expelled_.end());
    all.floors.insert(all.floors.end(), floors_.begin(), floors_.end());
    restored_.visit_all([&](std::uint64_t replica, bool) { all.replicas.push_back(replica); });
    keys_.visit_all([&](std::uint64_t digest, wire::PutId put_id) { all.keys.push_back({digest, put_id}); });
    // The order in which tables hold them is no news to anybody.
    std::sort(all.replicas.begin(), all.replicas.end());
    std::sort(all.keys.begin(), all.keys.end(),
              [](const auto& a, const auto& b) { return a.digest < b.digest; });
    return all;
}

}  // namespace mooncake::metadata
