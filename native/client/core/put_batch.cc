#include "client/core/put_batch.h"

#include <algorithm>
#include <unordered_map>

#include "wire/crc32c.h"
#include "wire/value_checksum.h"
#include "wire/value_header.h"

namespace mooncake::client {

namespace {

// Bytes of a put_start's body that one key takes: its length, size and parent beside itself.
constexpr std::size_t kPutStartBytesAKey = 2 + 8 + 8;

bool is_written(wire::Status status) { return wire::ok(status) || status == wire::Status::kSealed; }

}  // namespace

PutBatch::PutBatch(Cluster& cluster, std::uint64_t deadline_ms, std::span<const PutItem> items,
                   Options options)
    : Operation(cluster, deadline_ms),
      items_(items),
      options_(std::move(options)),
      statuses_(items.size(), wire::Status::kDeadline),
      entries_(items.size()),
      queued_count_(items.size()) {}

wire::Status PutBatch::invalid(const PutItem& item) const {
    if (!wire::is_valid_key(item.key)) return wire::Status::kInvalidKey;
    if (item.size > wire::kValueBytesMax) return wire::Status::kValueTooLarge;
    if (item.user_metadata.size() > wire::kUserMetadataBytesMax) return wire::Status::kInvalidParams;
    return wire::Status::kOk;
}

void PutBatch::begin(std::uint64_t now_ms, Actions& actions) {
    for (std::uint32_t i = 0; i < items_.size(); ++i) {
        const auto status = invalid(items_[i]);
        if (wire::ok(status)) continue;
        --queued_count_;
        answer(i, status);
    }
    next_round(now_ms, actions);
}

void PutBatch::answer(std::uint32_t index, wire::Status status) {
    entries_[index].step = Step::kAnswered;
    // Which node had no range is our concern; the caller's answer is that there was no space.
    statuses_[index] = status == wire::Status::kNoRange ? wire::Status::kNoSpace : status;
}

void PutBatch::answer_rest(wire::Status status) {
    std::vector<wire::PutId> begun;
    for (const auto& grant : grants_) {
        if (entries_[grant.index].step == Step::kInRound) begun.push_back(grant.put_id);
    }
    if (!begun.empty()) cluster_.revoke(begun);
    for (std::uint32_t i = 0; i < entries_.size(); ++i) {
        auto& entry = entries_[i];
        if (entry.step == Step::kAnswered) continue;
        // Waited for somebody else's put until the end: that is what to tell.
        const bool waited = entry.step == Step::kWaiting && status == wire::Status::kDeadline;
        answer(i, waited ? entry.waits_on : status);
    }
}

void PutBatch::on_refused(wire::Status status, std::uint64_t, Actions&) { give_up(status); }

// ---- rounds

void PutBatch::next_round(std::uint64_t now_ms, Actions& actions) {
    grants_.clear();
    places_.clear();
    results_.clear();
    round_.clear();
    if (queued_count_ + waiting_count_ > 0) collect_round(now_ms);
    if (!round_.empty()) {
        ask_put_start(actions);
        return;
    }
    if (waiting_count_ == 0) {
        finish();
        return;
    }
    std::uint64_t earliest = ~std::uint64_t{0};
    for (const auto& entry : entries_) {
        if (entry.step == Step::kWaiting) earliest = std::min(earliest, entry.again_at_ms);
    }
    wake_at(earliest);
}

void PutBatch::on_wake(std::uint64_t now_ms, Actions& actions) { next_round(now_ms, actions); }

void PutBatch::collect_round(std::uint64_t now_ms) {
    std::size_t body_bytes = 0;
    std::uint64_t value_bytes = 0;
    // Keys that wait for somebody's outcome may lie anywhere; without any, the walk starts where it ended.
    for (auto i = waiting_count_ > 0 ? 0 : scan_from_; i < items_.size(); ++i) {
        auto& entry = entries_[i];
        const bool is_due = entry.step == Step::kWaiting && now_ms >= entry.again_at_ms;
        if (entry.step != Step::kQueued && !is_due) continue;
        const auto& item = items_[i];
        body_bytes += item.key.size() + kPutStartBytesAKey;
        value_bytes += item.size;
        if (!round_.empty() && (round_.size() >= wire::kBatchKeysMax || body_bytes > kLaneBodyBytesMax ||
                                value_bytes > kRoundValueBytesMax)) {
            return;
        }
        --(is_due ? waiting_count_ : queued_count_);
        entry.step = Step::kInRound;
        round_.push_back(static_cast<std::uint32_t>(i));
        scan_from_ = std::max(scan_from_, i + 1);
    }
}

void PutBatch::ask_put_start(Actions& actions) {
    std::vector<std::string_view> keys;
    std::vector<std::uint64_t> sizes;
    std::vector<std::uint64_t> parents;
    keys.reserve(round_.size());
    sizes.reserve(round_.size());
    parents.reserve(round_.size());
    for (const auto index : round_) {
        keys.push_back(items_[index].key);
        sizes.push_back(items_[index].size);
        parents.push_back(items_[index].parent_digest);
    }
    std::vector<wire::SegmentId> avoided;
    cluster_.avoid(avoided);
    avoided_count_ = avoided.size();
    const std::vector<std::string_view> preferred(options_.preferred.begin(), options_.preferred.end());
    auto writer = begin_ask(wire::Verb::kPutStart, true);
    wire::encode_put_start(prefix(), avoided, options_.placement, preferred, keys, sizes, parents, writer);
    end_ask(actions);
}

bool PutBatch::on_answer(wire::Bytes body, std::uint64_t now_ms, Actions& actions) {
    switch (lane_verb()) {
        case wire::Verb::kPutStart:
            return on_grants(body, now_ms, actions);
        case wire::Verb::kSegments:
            if (!learn_segments(asked_segments_, body)) return false;
            start_writes(actions);
            return true;
        default:
            return on_committed(body, now_ms, actions);
    }
}

bool PutBatch::on_grants(wire::Bytes body, std::uint64_t now_ms, Actions& actions) {
    const auto reply = wire::Places<wire::GrantRecord>::parse(body);
    if (!reply || reply->count != round_.size()) return false;
    std::uint32_t place = 0;
    for (std::uint32_t i = 0; i < reply->count; ++i) {
        const auto record = reply->record(i);
        const bool is_granted = wire::ok(record.status);
        if (record.replica_count > wire::kReplicasMax || (is_granted && record.replica_count == 0))
            return false;
        if (!is_granted) {
            place += record.replica_count;
            settle_ungranted(round_[i], record.status, now_ms);
            continue;
        }
        grants_.push_back(
            {round_[i], static_cast<std::uint32_t>(results_.size()), record.replica_count, record.put_id});
        for (std::uint32_t end = place + record.replica_count; place < end; ++place) {
            places_.push_back(reply->place(place));
            results_.push_back({places_.back().replica, wire::Status::kUnreachable, 0, 0});
        }
    }
    if (grants_.empty()) {
        next_round(now_ms, actions);
        return true;
    }
    asked_segments_.clear();
    wire::SegmentId last = 0;
    for (const auto& granted : places_) {
        if (granted.segment == last) continue;
        last = granted.segment;
        if (cluster_.route(last).kind == Route::Kind::kUnknown &&
            std::find(asked_segments_.begin(), asked_segments_.end(), last) == asked_segments_.end()) {
            asked_segments_.push_back(last);
        }
    }
    if (asked_segments_.empty()) {
        start_writes(actions);
    } else {
        ask_segments(asked_segments_, actions);
    }
    return true;
}

void PutBatch::settle_ungranted(std::uint32_t index, wire::Status status, std::uint64_t now_ms) {
    auto& entry = entries_[index];
    // Somebody's put is under way, a bound is reached, or the nodes have not told a new master all they hold.
    if (status != wire::Status::kNotReady && status != wire::Status::kBusy &&
        status != wire::Status::kRebuilding) {
        // Else a pool whose nodes are ill reads as one that is full.
        if (status == wire::Status::kNoSpace && avoided_count_ != 0) {
            set_why(std::to_string(avoided_count_) +
                    " segments were left out: their nodes do not answer this client");
        }
        answer(index, status);
        return;
    }
    const auto shift = std::min<unsigned>(entry.outcome_asks, 16);
    if (entry.outcome_asks < 255) ++entry.outcome_asks;
    entry.again_at_ms = now_ms + std::min(kOutcomeDelayMinMs << shift, kOutcomeDelayMaxMs);
    entry.step = Step::kWaiting;
    entry.waits_on = status;
    ++waiting_count_;
}

// ---- writing

void PutBatch::start_writes(Actions& actions) {
    std::vector<PeerPlan> plans;
    std::unordered_map<wire::SegmentId, Route> routes;
    for (std::uint32_t g = 0; g < grants_.size(); ++g) {
        const auto& grant = grants_[g];
        for (auto slot = grant.first; slot < grant.first + grant.count; ++slot) {
            const auto segment = places_[slot].segment;
            const auto [known, is_new] = routes.try_emplace(segment);
            if (is_new) known->second = cluster_.route(segment);
            // Without a way there the result stays UNREACHABLE.
            if (known->second.kind != Route::Kind::kReachable) continue;
            const auto peer = known->second.peer;
            auto plan = std::find_if(plans.begin(), plans.end(),
                                     [peer](const PeerPlan& p) { return p.peer == peer; });
            if (plan == plans.end()) {
                plans.emplace_back().peer = peer;
                plan = plans.end() - 1;
            }
            plan->bytes += items_[grant.index].size;
            plan->slots.emplace_back(g, slot);
        }
    }
    for (const auto& plan : plans) emit_writes(plan, actions);
    if (open_writes_ == 0) writes_done(actions);
}

void PutBatch::emit_writes(const PeerPlan& plan, Actions& actions) {
    const auto share = plan.bytes > kStripeBytesMin ? (plan.bytes + 1) / 2 : ~std::uint64_t{0};
    for (std::size_t first = 0; first < plan.slots.size();) {
        std::size_t last = first;
        std::uint64_t bytes = 0;
        while (last < plan.slots.size() && last - first < wire::kBatchKeysMax &&
               (last == first || bytes < share)) {
            bytes += items_[grants_[plan.slots[last++].first].index].size;
        }
        const auto ticket = static_cast<Ticket>(writes_.size());
        auto& write = writes_.emplace_back();
        write_slots_.emplace_back();
        for (auto i = first; i < last; ++i) write_slots_.back().push_back(plan.slots[i].second);
        write.peer = plan.peer;
        write.deadline_ms = deadline_ms();
        write.bytes = bytes;
        encode_write(plan, first, last, write);
        ++open_writes_;
        actions.writes.push_back(ticket);
        first = last;
    }
}

void PutBatch::encode_write(const PeerPlan& plan, std::size_t first, std::size_t last, NodeWrite& write) {
    std::vector<wire::WriteItem> items;
    wire::Buffer headers;
    wire::Writer header_writer(headers);
    items.reserve(last - first);
    for (auto i = first; i < last; ++i) {
        const auto [g, slot] = plan.slots[i];
        const auto& grant = grants_[g];
        const auto start = headers.size();
        wire::encode(value_header(grant), header_writer);
        items.push_back({places_[slot].replica, places_[slot].segment, items_[grant.index].size,
                         static_cast<std::uint32_t>(headers.size() - start), 0});
        write.index.push_back(grant.index);
    }
    wire::FrameHeader header;
    header.verb = wire::Verb::kWrite;
    header.epoch = wire::epoch_of(grants_[plan.slots[first].first].put_id);
    wire::begin_frame(write.frame, header);
    wire::Writer writer(write.frame);
    wire::encode_write(items, std::span<const wire::Buffer>(&headers, 1), writer);
    wire::finish_frame(write.frame, 0);
}

wire::ValueHeader PutBatch::value_header(const Grant& grant) const {
    const auto& item = items_[grant.index];
    const auto& placement = options_.placement;
    wire::ValueHeader header;
    header.put_id = grant.put_id;
    header.size = item.size;
    header.ttl_ms = placement.ttl_ms;
    header.parent_digest = item.parent_digest;
    header.soft_pin_ms = placement.soft_pin_ms;
    if ((placement.flags & wire::kPutHardPin) != 0) header.flags |= wire::kValueHardPin;
    if ((placement.flags & wire::kPutSoftPin) != 0) header.flags |= wire::kValueSoftPin;
    if (options_.checksums) {
        header.flags |= wire::kValueHasChecksum;
        const auto seed = wire::value_checksum_seed(cluster_.tenant(), item.key, grant.put_id);
        header.checksum = wire::crc32c_combine(seed, item.value_checksum, item.size);
    }
    header.replica_count = placement.replica_count;
    header.tenant = cluster_.tenant();
    header.key = item.key;
    header.user_metadata = item.user_metadata;
    return header;
}

bool PutBatch::on_write_answer(Ticket ticket, const wire::FrameHeader& header, wire::Bytes body,
                               std::uint64_t now_ms, Actions& actions) {
    if (done()) return true;
    const auto& slots = write_slots_[ticket];
    if (!wire::ok(header.status)) {
        wire::Reader reader(body);
        set_why(reader.text16(wire::kHelloBytesMax));
        for (const auto slot : slots) results_[slot].status = header.status;
    } else {
        const auto statuses = wire::parse_statuses(body);
        if (!statuses || statuses->size() != slots.size()) {
            on_write_failed(ticket, Failure::kMalformed, "a node's answer does not parse", now_ms, actions);
            return false;
        }
        for (std::size_t i = 0; i < slots.size(); ++i) results_[slots[i]].status = (*statuses)[i];
    }
    cluster_.peer_answered(writes_[ticket].peer);
    write_over(now_ms, actions);
    return true;
}

void PutBatch::on_write_failed(Ticket ticket, Failure failure, std::string_view why, std::uint64_t now_ms,
                               Actions& actions) {
    if (done()) return;
    set_why(why);
    auto& write = writes_[ticket];
    if (failure == Failure::kBroken && !write.fresh_connection) {
        // It may have died while nobody used it. What the node had begun to receive it refuses as stale.
        write.fresh_connection = true;
        actions.writes.push_back(ticket);
        return;
    }
    cluster_.peer_failed(write.peer, failure, now_ms);
    const auto status = failure == Failure::kNotSent ? wire::Status::kBusy : wire::Status::kTransferFail;
    for (const auto slot : write_slots_[ticket]) results_[slot].status = status;
    write_over(now_ms, actions);
}

void PutBatch::write_over(std::uint64_t, Actions& actions) {
    if (--open_writes_ == 0) writes_done(actions);
}

// ---- committing

// One put_end for all of the round, failures named too: that ends their unfinished put, so that the key may
// be put again at once.
void PutBatch::writes_done(Actions& actions) {
    std::vector<wire::PutEndItem> items;
    items.reserve(grants_.size());
    for (const auto& grant : grants_) items.push_back({grant.put_id, grant.count, 0});
    auto writer = begin_ask(wire::Verb::kPutEnd, true);
    wire::encode_put_end(prefix(), items, results_, writer);
    end_ask(actions);
}

bool PutBatch::on_committed(wire::Bytes body, std::uint64_t now_ms, Actions& actions) {
    const auto statuses = wire::parse_statuses(body);
    if (!statuses || statuses->size() != grants_.size()) return false;
    std::vector<std::string_view> changed;
    changed.reserve(grants_.size());
    for (const auto& grant : grants_) changed.push_back(items_[grant.index].key);
    cluster_.bar(changed, now_ms);
    for (std::size_t i = 0; i < grants_.size(); ++i) settle(grants_[i], (*statuses)[i], now_ms);
    next_round(now_ms, actions);
    return true;
}

void PutBatch::settle(const Grant& grant, wire::Status status, std::uint64_t now_ms) {
    const auto first = results_.begin() + grant.first;
    const auto results = std::span(first, first + grant.count);
    const bool is_stored = std::any_of(results.begin(), results.end(),
                                       [](const auto& result) { return is_written(result.status); });
    if (!is_stored) {
        status = results[0].status;
        for (const auto& result : results) {
            if (result.status == wire::Status::kStaleGrant || result.status == wire::Status::kNoRange) {
                status = result.status;
            }
        }
    }
    if (status == wire::Status::kSuperseded) {
        // A newer value of the key was committed meanwhile. For an upsert that is as if ours had come just
        // before it.
        const bool is_upsert = (options_.placement.flags & wire::kPutUpsert) != 0;
        status = is_upsert ? wire::Status::kOk : wire::Status::kObjectAlreadyExists;
    }
    if (wire::ok(status) || !try_again(grant, status, now_ms)) answer(grant.index, status);
}

// Each reason earns one more attempt, a fragmented segment kNoRangesMax; a busy node as many as the deadline
// allows.
bool PutBatch::try_again(const Grant& grant, wire::Status status, std::uint64_t now_ms) {
    if (status == wire::Status::kBusy) {
        settle_ungranted(grant.index, status, now_ms);
        return true;
    }
    auto& entry = entries_[grant.index];
    bool* retried = nullptr;
    bool has_no_range_left = false;
    if (status == wire::Status::kNoRange) {
        // The master heard of it with put_end: it places the value elsewhere, or evicts more.
        if (entry.no_ranges == kNoRangesMax) return false;
        ++entry.no_ranges;
        retried = &has_no_range_left;
    } else if (status == wire::Status::kStaleGrant || status == wire::Status::kStaleEpoch ||
               status == wire::Status::kReplicaNotFound || status == wire::Status::kObjectNotFound) {
        retried = &entry.retried_grant;
    } else if (status == wire::Status::kTransferFail || status == wire::Status::kUnreachable) {
        retried = &entry.retried_peer;
    }
    if (retried == nullptr || *retried) return false;
    *retried = true;
    entry.step = Step::kQueued;
    ++queued_count_;
    scan_from_ = std::min<std::size_t>(scan_from_, grant.index);
    return true;
}

}  // namespace mooncake::client
