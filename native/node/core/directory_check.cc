// Directory::check_invariants: walks everything and compares it with the running counts.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "node/core/directory.h"

namespace mooncake::node {

namespace {

[[noreturn]] void fail(const std::string& what) { throw std::logic_error("directory: " + what); }

void require(bool holds, const std::string& what) {
    if (!holds) fail(what);
}

}  // namespace

void Directory::check_entry(const Entry& entry) const {
    const std::string name = "replica " + std::to_string(entry.replica);
    require(entry.segment < segments_.size(), name + " lies on no segment");
    const Segment& segment = segments_[entry.segment];
    require(segment.ranges.holds(entry.range), name + " names a range that is not in use");
    require(segment.ranges.size_of(entry.range) >= entry.size, name + " has a range shorter than its value");
    require(entry.header != nullptr && entry.header_bytes > 0, name + " has no header");
    const bool may_be_read = entry.state == State::kSealed || entry.state == State::kDraining;
    require(entry.references == 0 || may_be_read, name + " is read while it is received");
    require(entry.references > 0 || entry.state != State::kDraining, name + " drains without a reader");
    if (entry.state == State::kDraining || entry.state == State::kCancelled) {
        require(std::find(freed_.begin(), freed_.end(), entry.replica) == freed_.end(),
                name + " is reported freed and still has its range");
    }
}

void Directory::check_segment(SegmentIndex index) const {
    const Segment& segment = segments_[index];
    const std::string name = "segment " + std::to_string(index);
    segment.ranges.check_invariants();
    std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
    std::uint64_t receiving = 0;
    std::uint64_t draining = 0;
    std::uint64_t settled = 0;
    std::uint64_t checksum = 0;
    std::size_t unsettled = 0;
    for (const auto& shard : shards_) {
        for (const auto& [replica, entry] : shard) {
            if (entry.segment != index) continue;
            const std::uint64_t bytes = segment.ranges.size_of(entry.range);
            spans.emplace_back(entry.range.offset, bytes);
            if (entry.state == State::kReceiving) receiving += bytes;
            if (entry.state == State::kDraining || entry.state == State::kCancelled) draining += bytes;
            if (entry.state != State::kSealed || !is_current(entry)) continue;
            if (replica > segment.settled_id) {
                ++unsettled;
                require(segment.unsettled.contains(replica), name + " does not list an unsettled replica");
            } else {
                ++settled;
                checksum ^= wire::mix64(replica);
            }
        }
    }
    std::sort(spans.begin(), spans.end());
    std::uint64_t used = 0;
    std::uint64_t end = 0;
    for (const auto& [offset, bytes] : spans) {
        require(offset >= end, name + ": ranges in use overlap at offset " + std::to_string(offset));
        end = offset + bytes;
        used += bytes;
    }
    require(end <= segment.ranges.capacity(), name + ": a range ends beyond the segment");
    require(used == segment.ranges.used_bytes(), name + ": ranges are in use that no replica owns");
    require(receiving == segment.receiving_bytes, name + ": receiving_bytes is wrong");
    require(draining == segment.draining_bytes, name + ": draining_bytes is wrong");
    require(unsettled == segment.unsettled.size(), name + ": lists unsettled replicas that are not sealed");
    require(settled == segment.settled_count, name + ": sealed_count is wrong");
    require(checksum == segment.settled_checksum, name + ": sealed_checksum is wrong");
}

void Directory::check_invariants() const {
    Counts sums;
    for (const auto& shard : shards_) {
        for (const auto& [replica, entry] : shard) {
            require(replica == entry.replica, "an entry lies under another id");
            check_entry(entry);
            ++sums.replicas;
            sums.references += entry.references;
            sums.header_bytes += entry.header_bytes;
            sums.used_bytes += segments_[entry.segment].ranges.size_of(entry.range);
            if (entry.state == State::kSealed) ++sums.sealed;
            if (entry.state == State::kDraining) ++sums.draining;
            if (entry.state == State::kReceiving || entry.state == State::kCancelled) ++sums.receiving;
        }
    }
    require(sums.replicas == counts_.replicas, "the count of replicas is wrong");
    require(sums.references == counts_.references, "the count of references is wrong");
    require(sums.header_bytes == counts_.header_bytes, "the count of header bytes is wrong");
    require(sums.used_bytes == counts_.used_bytes, "the count of used bytes is wrong");
    require(sums.sealed == counts_.sealed, "the count of sealed replicas is wrong");
    require(sums.draining == counts_.draining, "the count of draining replicas is wrong");
    require(sums.receiving == counts_.receiving, "the count of receiving replicas is wrong");
    for (std::size_t i = 0; i < segments_.size(); ++i) check_segment(static_cast<SegmentIndex>(i));

    require(retired_.size() == retired_order_.size(), "remembered ids and their order differ");
    require(retired_.size() <= options_.retired_ids_max, "more ended ids are remembered than allowed");
    for (const auto replica : retired_order_) {
        require(retired_.contains(replica), "an ended id is listed but not remembered");
        const auto& shard = shards_[wire::mix64(replica) % kShards];
        const auto held = shard.find(replica);
        const bool ending = held == shard.end() || held->second.state == State::kDraining ||
                            held->second.state == State::kCancelled;
        require(ending, "an ended replica is still served");
    }
}

}  // namespace mooncake::node
