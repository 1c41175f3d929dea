#include "metadata/segments.h"

#include <algorithm>
#include <cassert>

namespace mooncake::metadata {

wire::SegmentDescription Segment::description() const {
    return {tier, capacity_bytes, incarnation, name, host_id, {endpoints.begin(), endpoints.end()}};
}

const SegmentIndex* Segments::find_name(std::string_view name) const {
    for (const auto& index : mounted_) {
        if (slots_[index].name == name) return &index;
    }
    return nullptr;
}

SegmentIndex Segments::mount(wire::SegmentId id, wire::SessionId owner,
                             const wire::SegmentDescription& description, bool is_reported) {
    if (free_.empty()) {
        free_.push_back(static_cast<SegmentIndex>(slots_.size()));
        slots_.emplace_back();
    }
    const SegmentIndex index = free_.back();
    free_.pop_back();
    Segment segment;
    segment.state = Segment::State::kMounted;
    segment.id = id;
    segment.owner = owner;
    segment.is_reported = is_reported;
    segment.tier = description.tier;
    segment.capacity_bytes = description.capacity_bytes;
    segment.incarnation = description.incarnation;
    segment.name = description.name;
    segment.host_id = description.host_id;
    segment.endpoints.assign(description.endpoints.begin(), description.endpoints.end());
    segment.order = std::make_unique<EvictionOrder>(false);
    segment.soft_order = std::make_unique<EvictionOrder>(true);
    slots_[index] = std::move(segment);
    by_id_.insert(id, index);
    list_mounted();
    return index;
}

void Segments::reported(SegmentIndex index) {
    slots_[index].is_reported = true;
    list_mounted();
}

void Segments::drain(SegmentIndex index) {
    slots_[index].is_draining = true;
    list_mounted();
}

void Segments::expel(SegmentIndex index) {
    Segment& segment = slots_[index];
    assert(segment.is_mounted());
    segment.state = Segment::State::kExpelled;
    segment.order.reset();
    segment.soft_order.reset();
    segment.promised_bytes = 0;
    segment.orphans = {};
    by_id_.erase(segment.id);
    ++expelled_count_;
    list_mounted();
}

std::uint64_t Segments::expelled_replicas(ReplicaStatus status) const {
    std::uint64_t total = 0;
    for (const auto& segment : slots_) {
        if (segment.state == Segment::State::kExpelled)
            total += segment.counts[static_cast<std::size_t>(status)];
    }
    return total;
}

void Segments::free_empty_slots() {
    for (std::size_t i = 0; expelled_count_ > 0 && i < slots_.size(); ++i) {
        Segment& segment = slots_[i];
        if (segment.state != Segment::State::kExpelled || segment.replica_count() > 0) continue;
        segment = Segment{};
        free_.push_back(static_cast<SegmentIndex>(i));
        --expelled_count_;
    }
}

// In the order of ids, so that what depends on the list depends on the history alone.
void Segments::list_mounted() {
    mounted_.clear();
    mounted_dram_.clear();
    largest_dram_bytes_ = 0;
    unreported_count_ = 0;
    draining_count_ = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        slots_[i].is_in_totals = false;
        if (slots_[i].is_mounted()) mounted_.push_back(static_cast<SegmentIndex>(i));
    }
    std::sort(mounted_.begin(), mounted_.end(),
              [&](SegmentIndex a, SegmentIndex b) { return slots_[a].id < slots_[b].id; });
    for (const auto index : mounted_) {
        if (!slots_[index].is_reported) ++unreported_count_;
        if (slots_[index].is_draining) ++draining_count_;
        const bool takes = slots_[index].is_reported && !slots_[index].is_draining;
        if (slots_[index].tier != wire::Tier::kDram || !takes) continue;
        mounted_dram_.push_back(index);
        slots_[index].is_in_totals = true;
        largest_dram_bytes_ = std::max(largest_dram_bytes_, slots_[index].capacity_bytes);
    }
    dram_totals_ = summed_dram();
}

void Segments::change(SegmentIndex index, ReplicaStatus from, ReplicaStatus to, std::uint64_t bytes) {
    Segment& segment = slots_[index];
    const std::uint64_t used = segment.used_bytes();
    const std::uint64_t retiring = segment.retiring_bytes();
    if (from != ReplicaStatus::kNone) {
        const auto left = static_cast<std::size_t>(from);
        assert(segment.counts[left] > 0 && segment.bytes[left] >= bytes);
        segment.bytes[left] -= bytes;
        --segment.counts[left];
    }
    if (to != ReplicaStatus::kNone) {
        const auto entered = static_cast<std::size_t>(to);
        segment.bytes[entered] += bytes;
        ++segment.counts[entered];
    }
    if (!segment.is_in_totals) return;
    dram_totals_.used_bytes += segment.used_bytes() - used;
    dram_totals_.retiring_bytes += segment.retiring_bytes() - retiring;
}

Segments::Totals Segments::summed_dram() const {
    Totals totals;
    for (const auto index : mounted_dram_) {
        totals.capacity_bytes += slots_[index].capacity_bytes;
        totals.used_bytes += slots_[index].used_bytes();
        totals.retiring_bytes += slots_[index].retiring_bytes();
    }
    return totals;
}

}  // namespace mooncake::metadata
