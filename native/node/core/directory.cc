#include "node/core/directory.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/digest.h"
#include "wire/value_header.h"

namespace mooncake::node {

namespace {

// How far beyond the ready part a write may raise the mark: a few page faults' worth for small values.
constexpr std::uint64_t kUnreadyStepBytes = 2u << 20;

}  // namespace

Directory::Directory(DirectoryOptions options) : options_(options) {}
Directory::~Directory() = default;

// ---- segments

SegmentIndex Directory::add_segment(std::uint64_t capacity_bytes) {
    assert(segments_.size() < wire::kSegmentsAMountMax);
    segments_.emplace_back(capacity_bytes);
    counts_.capacity_bytes += segments_.back().ranges.capacity();
    return static_cast<SegmentIndex>(segments_.size() - 1);
}

void Directory::set_ready(SegmentIndex segment, std::uint64_t ready_bytes) {
    Segment& of = segments_.at(segment);
    of.ready_bytes = std::max(of.ready_bytes, std::min(ready_bytes, of.ranges.capacity()));
    of.ranges.set_ready(of.ready_bytes);
}

void Directory::attach(SegmentIndex segment, wire::SegmentId id) { segments_.at(segment).id = id; }

wire::SegmentId Directory::segment_id(SegmentIndex segment) const { return segments_.at(segment).id; }

void Directory::expel(SegmentIndex segment) {
    Segment& of = segments_.at(segment);
    of.id = 0;
    ++of.incarnation;
    of.settled_id = 0;
    of.settled_count = 0;
    of.settled_checksum = 0;
    of.unsettled.clear();
    sweep_shard_ = 0;
    // What was freed but not yet told concerns an incarnation that nobody counts any more; the master ignores
    // ids it does not know, so those of other segments may be told again or not at no harm.
}

bool Directory::sweep() {
    if (sweep_shard_ == kShards) return true;
    std::vector<wire::ReplicaId> outdated;
    for (const auto& [replica, entry] : shards_[sweep_shard_]) {
        if (!is_current(entry)) outdated.push_back(replica);
    }
    for (const auto replica : outdated) end(*find(replica));
    return ++sweep_shard_ == kShards;
}

// ---- whom to obey

void Directory::adopt(std::uint64_t epoch) {
    if (epoch <= epoch_) return;
    epoch_ = epoch;
    // Ids of older reigns that are not held can never be written again, so they need not be remembered.
    ended_floor_ = std::max(ended_floor_, wire::make_id(epoch, 0) - 1);
    while (!retired_order_.empty() && retired_order_.front() <= ended_floor_) {
        retired_.erase(retired_order_.front());
        retired_order_.pop_front();
    }
}

// ---- writing

Granted Directory::begin_write(const wire::WriteItem& item, wire::Bytes header, std::uint64_t epoch) {
    const auto parsed = wire::parse_value_header(header);
    if (!parsed || parsed->size != item.length || parsed->key.size() > wire::kKeyBytesMax ||
        header.size() > wire::kValueHeaderBytesMax || item.replica == 0 || parsed->put_id == 0) {
        return {wire::Status::kInvalidParams};
    }
    const std::uint64_t digest = wire::key_digest(parsed->tenant, parsed->key);
    if (const Entry* held = find(item.replica); held != nullptr) {
        const bool same = held->digest == digest && held->size == item.length;
        const bool sealed = held->state == State::kSealed && is_current(*held);
        return refuse(sealed && same ? wire::Status::kSealed : wire::Status::kStaleGrant);
    }
    const auto index = segment_by_id(item.segment);
    // The master grants as soon as it has answered a mount, and a writer may be here before that answer is.
    const bool may_follow = epoch >= epoch_ && !has_ended(item.replica);
    if (!index && may_follow && awaits_mount()) return {wire::Status::kBusy};
    if (fenced_) {
        ++counts_.fenced_refusals;
        return {wire::Status::kStaleGrant};
    }
    if (!index || epoch < epoch_ || has_ended(item.replica)) return refuse(wire::Status::kStaleGrant);

    Segment& segment = segments_[*index];
    const auto range = allocate(segment, item.length);
    if (!range) return refuse(wire::Status::kNoRange);

    Entry entry;
    entry.replica = item.replica;
    entry.digest = digest;
    entry.size = item.length;
    entry.range = *range;
    entry.header = std::make_unique<std::uint8_t[]>(header.size());
    std::memcpy(entry.header.get(), header.data(), header.size());
    entry.header_bytes = static_cast<std::uint16_t>(header.size());
    entry.incarnation = segment.incarnation;
    entry.checksum = parsed->checksum;
    entry.has_checksum = (parsed->flags & wire::kValueHasChecksum) != 0;
    entry.segment = *index;
    counts_.header_bytes += header.size();
    ++counts_.replicas;
    counts_.used_bytes += segment.ranges.size_of(*range);
    const auto placed = shard_of(item.replica).emplace(item.replica, std::move(entry));
    enter(placed.first->second, State::kReceiving);
    return {wire::Status::kOk, *index, range->offset};
}

wire::Status Directory::seal(wire::ReplicaId replica) {
    Entry* entry = find(replica);
    assert(entry != nullptr && (entry->state == State::kReceiving || entry->state == State::kCancelled));
    if (entry->state == State::kCancelled || !is_current(*entry)) {
        release(*entry, entry->state == State::kCancelled);
        return refuse(wire::Status::kStaleGrant).status;
    }
    leave(*entry);
    enter(*entry, State::kSealed);
    entry->sealed_ms = now_ms_;
    count_sealed(segments_[entry->segment], replica);
    return wire::Status::kOk;
}

void Directory::cancel(wire::ReplicaId replica) {
    Entry* entry = find(replica);
    assert(entry != nullptr && (entry->state == State::kReceiving || entry->state == State::kCancelled));
    release(*entry, entry->state == State::kCancelled);
}

// ---- reading

Directory::View Directory::open(wire::ReplicaId replica, std::uint64_t digest) {
    if (fenced_) {
        ++counts_.fenced_refusals;
        return {};
    }
    Entry* entry = find(replica);
    if (entry == nullptr || entry->state != State::kSealed || !is_current(*entry)) {
        ++counts_.gone;
        return {};
    }
    if (entry->digest != digest) {
        ++counts_.digest_mismatches;
        return {};
    }
    ++entry->references;
    ++counts_.references;
    View view;
    view.reference = entry;
    view.segment = entry->segment;
    view.has_checksum = entry->has_checksum;
    view.checksum = entry->checksum;
    view.offset = entry->range.offset;
    view.size = entry->size;
    view.header = {entry->header.get(), entry->header_bytes};
    return view;
}

void Directory::close(Entry* reference) {
    assert(reference != nullptr && reference->references > 0);
    --reference->references;
    --counts_.references;
    if (reference->state == State::kDraining && reference->references == 0) release(*reference, true);
}

void Directory::write_header(const Entry& entry, wire::Writer& writer) const {
    const wire::Bytes kept(entry.header.get(), entry.header_bytes);
    wire::ValueHeader header = *wire::parse_value_header(kept);
    if (header.ttl_ms == 0 && header.soft_pin_ms == 0) return writer.bytes(kept);
    // 0 would mean no TTL, and the default pin: the last millisecond stands for what is over.
    const std::uint64_t age_ms = now_ms_ - std::min(now_ms_, entry.sealed_ms);
    if (header.ttl_ms != 0) header.ttl_ms -= std::min(header.ttl_ms - 1, age_ms);
    if (header.soft_pin_ms != 0) {
        header.soft_pin_ms -=
            static_cast<std::uint32_t>(std::min<std::uint64_t>(header.soft_pin_ms - 1, age_ms));
    }
    wire::encode(header, writer);
}

// ---- retiring

void Directory::retire(std::span<const wire::ReplicaId> replicas, std::vector<wire::ReplicaId>& freed) {
    for (const auto replica : replicas) {
        remember_retired(replica);
        Entry* entry = find(replica);
        if (entry == nullptr || end(*entry)) freed.push_back(replica);
    }
}

std::vector<wire::ReplicaId> Directory::pending_freed(std::size_t max) const {
    const auto count = static_cast<std::ptrdiff_t>(std::min(max, freed_.size()));
    return {freed_.begin(), freed_.begin() + count};
}

void Directory::acknowledge_freed(std::size_t count) {
    assert(count <= freed_.size());
    freed_.erase(freed_.begin(), freed_.begin() + static_cast<std::ptrdiff_t>(count));
}

// ---- reporting

wire::SegmentReport Directory::report(SegmentIndex index, wire::ReplicaId settled_id) {
    Segment& segment = segments_.at(index);
    settle(segment, settled_id);
    wire::SegmentReport report;
    report.segment = segment.id;
    report.ready_bytes = segment.ready_bytes;
    report.receiving_bytes = segment.receiving_bytes;
    report.draining_bytes = segment.draining_bytes;
    // What is not faulted in yet can be granted too.
    report.largest_free_bytes =
        std::max(segment.ranges.largest_free(), segment.ranges.capacity() - segment.ranges.ready_bytes());
    report.sealed_count = segment.settled_count;
    report.sealed_checksum = segment.settled_checksum;
    return report;
}

std::vector<wire::ReplicaId> Directory::take_inventory(std::size_t part) {
    std::vector<wire::ReplicaId> sealed;
    for (auto& [replica, entry] : shards_.at(part)) {
        if (entry.state == State::kReceiving) end(entry);  // stays in the table until the receive has ended
        if (entry.state == State::kSealed && is_current(entry)) sealed.push_back(replica);
    }
    return sealed;
}

bool Directory::describe(wire::ReplicaId replica, std::vector<wire::InventoryItem>& items,
                         wire::Writer& headers) {
    const Entry* entry = find(replica);
    if (entry == nullptr || entry->state != State::kSealed || !is_current(*entry)) return false;
    const std::size_t start = headers.size();
    write_header(*entry, headers);
    items.push_back(
        {replica, segments_[entry->segment].id, static_cast<std::uint32_t>(headers.size() - start), 0});
    return true;
}

std::vector<wire::ReplicaId> Directory::settled(wire::SegmentId segment, wire::ReplicaId settled_id,
                                                std::size_t part) const {
    std::vector<wire::ReplicaId> settled;
    for (const auto& [replica, entry] : shards_.at(part)) {
        if (entry.state == State::kSealed && is_current(entry) && replica <= settled_id &&
            segments_[entry.segment].id == segment) {
            settled.push_back(replica);
        }
    }
    return settled;
}

Directory::Counts Directory::counts() const { return counts_; }

// ---- within

Directory::Shard& Directory::shard_of(wire::ReplicaId replica) {
    return shards_[wire::mix64(replica) % kShards];
}

Directory::Entry* Directory::find(wire::ReplicaId replica) {
    Shard& shard = shard_of(replica);
    const auto found = shard.find(replica);
    return found == shard.end() ? nullptr : &found->second;
}

std::optional<SegmentIndex> Directory::segment_by_id(wire::SegmentId id) const {
    for (std::size_t i = 0; id != 0 && i < segments_.size(); ++i) {
        if (segments_[i].id == id) return static_cast<SegmentIndex>(i);
    }
    return std::nullopt;
}

bool Directory::awaits_mount() const {
    return std::any_of(segments_.begin(), segments_.end(), [](const Segment& one) { return one.id == 0; });
}

bool Directory::is_current(const Entry& entry) const {
    return entry.incarnation == segments_[entry.segment].incarnation;
}

bool Directory::has_ended(wire::ReplicaId replica) const {
    return replica <= ended_floor_ || retired_.contains(replica);
}

Granted Directory::refuse(wire::Status status) {
    if (status == wire::Status::kStaleGrant) ++counts_.stale_grants;
    if (status == wire::Status::kNoRange) ++counts_.no_ranges;
    return {status};
}

std::optional<Range> Directory::allocate(Segment& segment, std::uint64_t size) {
    RangeAllocator& ranges = segment.ranges;
    for (;;) {
        if (auto range = ranges.allocate(size)) return range;
        const std::uint64_t left = ranges.capacity() - ranges.ready_bytes();
        if (left == 0 || size > ranges.capacity()) return std::nullopt;
        // The free bytes just below the mark join those above it, so at most size more are needed.
        const std::uint64_t step = std::max(ranges.charged_bytes(size), kUnreadyStepBytes);
        ranges.set_ready(ranges.ready_bytes() + std::min(step, left));
    }
}

void Directory::remember_retired(wire::ReplicaId replica) {
    if (has_ended(replica)) return;
    retired_.insert(replica);
    retired_order_.push_back(replica);
    if (retired_order_.size() <= options_.retired_ids_max) return;
    ended_floor_ = std::max(ended_floor_, retired_order_.front());
    retired_.erase(retired_order_.front());
    retired_order_.pop_front();
}

void Directory::count_sealed(Segment& segment, wire::ReplicaId replica) {
    if (replica > segment.settled_id) {
        segment.unsettled.insert(replica);
    } else {
        ++segment.settled_count;
        segment.settled_checksum ^= wire::mix64(replica);
    }
}

void Directory::discount_sealed(Segment& segment, wire::ReplicaId replica) {
    if (segment.unsettled.erase(replica) > 0) return;
    --segment.settled_count;
    segment.settled_checksum ^= wire::mix64(replica);
}

void Directory::settle(Segment& segment, wire::ReplicaId settled_id) {
    // It only rises under one master, and a later master's ids are higher.
    if (settled_id <= segment.settled_id) return;
    segment.settled_id = settled_id;
    auto& unsettled = segment.unsettled;
    while (!unsettled.empty() && *unsettled.begin() <= settled_id) {
        ++segment.settled_count;
        segment.settled_checksum ^= wire::mix64(*unsettled.begin());
        unsettled.erase(unsettled.begin());
    }
}

bool Directory::end(Entry& entry) {
    switch (entry.state) {
        case State::kReceiving:
            leave(entry);
            enter(entry, State::kCancelled);
            return false;
        case State::kSealed:
            if (is_current(entry)) discount_sealed(segments_[entry.segment], entry.replica);
            if (entry.references == 0) {
                release(entry, false);
                return true;
            }
            leave(entry);
            enter(entry, State::kDraining);
            return false;
        case State::kCancelled:
        case State::kDraining:
            return false;
    }
    return false;
}

// enter and leave are the only places that change a state and what is counted by it.
void Directory::enter(Entry& entry, State state) {
    Segment& segment = segments_[entry.segment];
    const std::uint64_t bytes = segment.ranges.size_of(entry.range);
    entry.state = state;
    if (state == State::kReceiving) segment.receiving_bytes += bytes;
    if (state == State::kCancelled || state == State::kDraining) segment.draining_bytes += bytes;
    if (state == State::kReceiving || state == State::kCancelled) ++counts_.receiving;
    if (state == State::kSealed) ++counts_.sealed;
    if (state == State::kDraining) ++counts_.draining;
}

void Directory::leave(const Entry& entry) {
    Segment& segment = segments_[entry.segment];
    const std::uint64_t bytes = segment.ranges.size_of(entry.range);
    const State state = entry.state;
    if (state == State::kReceiving) segment.receiving_bytes -= bytes;
    if (state == State::kCancelled || state == State::kDraining) segment.draining_bytes -= bytes;
    if (state == State::kReceiving || state == State::kCancelled) --counts_.receiving;
    if (state == State::kSealed) --counts_.sealed;
    if (state == State::kDraining) --counts_.draining;
}

// Gives the range back and forgets the entry. `report`: a retire asked for it, so the master waits to hear.
void Directory::release(Entry& entry, bool report) {
    assert(entry.references == 0);
    leave(entry);
    Segment& segment = segments_[entry.segment];
    if (report && is_current(entry)) freed_.push_back(entry.replica);
    counts_.used_bytes -= segment.ranges.size_of(entry.range);
    counts_.header_bytes -= entry.header_bytes;
    --counts_.replicas;
    segment.ranges.free(entry.range);
    shard_of(entry.replica).erase(wire::ReplicaId{entry.replica});
}

}  // namespace mooncake::node
