#include "client/core/get_batch.h"

#include <algorithm>
#include <utility>

#include "wire/crc32c.h"
#include "wire/digest.h"
#include "wire/value_checksum.h"

namespace mooncake::client {

namespace {

// Cut points inside a value: a multiple of this, so that both halves start aligned.
constexpr std::uint64_t kStripeAlignBytes = 64u << 10;

bool is_gone(wire::Status status) {
    return status == wire::Status::kGone || status == wire::Status::kReplicaNotFound;
}

}  // namespace

GetBatch::GetBatch(Cluster& cluster, std::uint64_t deadline_ms, std::span<const std::string_view> keys,
                   Options options)
    : Operation(cluster, deadline_ms),
      keys_(keys),
      options_(options),
      results_(keys.size()),
      entries_(keys.size()) {
    if (options.user_metadata) user_metadata_.resize(keys.size());
    may_recall_ = options.may_recall && keys.size() <= kRecalledKeysMax;
}

void GetBatch::set_capacities(std::vector<std::uint64_t> capacities) { capacities_ = std::move(capacities); }

void GetBatch::begin(std::uint64_t now_ms, Actions& actions) {
    for (std::uint32_t i = 0; i < keys_.size(); ++i) {
        if (!wire::is_valid_key(keys_[i])) answer(i, wire::Status::kInvalidKey);
        if (!capacities_.empty() && capacities_[i] == kNotWanted) entries_[i].step = Step::kAnswered;
    }
    if (may_recall_) {
        const auto now = cluster_.location_stamp(now_ms);
        for (std::uint32_t i = 0; i < keys_.size(); ++i) recall(i, now);
    }
    go_on(now_ms, actions);
}

void GetBatch::read(std::uint64_t deadline_ms, std::uint64_t now_ms, Actions& actions) {
    resume(deadline_ms);
    for (std::uint32_t i = 0; i < keys_.size(); ++i) {
        auto& entry = entries_[i];
        if (entry.step != Step::kLocated) continue;
        if (capacities_[i] == kNotWanted) {
            entry.step = Step::kAnswered;
        } else if (results_[i].length > capacities_[i]) {
            answer(i, wire::Status::kBufferOverflow);
        }
    }
    go_on(now_ms, actions);
}

void GetBatch::answer(std::uint32_t index, wire::Status status) {
    entries_[index].step = Step::kAnswered;
    results_[index].status = status;
}

void GetBatch::answer_rest(wire::Status status) {
    for (std::uint32_t i = 0; i < entries_.size(); ++i) {
        if (entries_[i].step == Step::kAnswered) continue;
        // Waited for busy nodes until the end: that is what to tell.
        const bool waited = entries_[i].step == Step::kWaiting && status == wire::Status::kDeadline;
        answer(i, waited ? wire::Status::kBusy : status);
    }
}

void GetBatch::on_refused(wire::Status status, std::uint64_t, Actions&) { give_up(status); }

void GetBatch::go_on(std::uint64_t now_ms, Actions& actions) {
    if (open_reads_ > 0) return;
    if (ask_lookup(now_ms, actions)) return;
    if (!capacities_.empty()) {
        if (ask_unknown_segments(actions) || plan_reads(now_ms, actions)) return;
        // Planning may have found that a key must be looked up again.
        if (some_failed_ && ask_lookup(now_ms, actions)) return;
    }
    if (waiting_count_ > 0) {
        busy_delay_ms_ = std::clamp(busy_delay_ms_ * 2, kBusyDelayMinMs, kBusyDelayMaxMs);
        wake_at(now_ms + busy_delay_ms_);
        return;
    }
    finish();
    if (capacities_.empty()) return;
    release_leases(now_ms);
    if (recalled_count_ > 0) tell_accesses(now_ms);
}

// The busy nodes are asked again; by now a remembered value may lie elsewhere, too.
void GetBatch::on_wake(std::uint64_t now_ms, Actions& actions) {
    for (auto& entry : entries_) {
        if (entry.step != Step::kWaiting) continue;
        entry.step = entry.is_recalled ? Step::kToLookUp : Step::kLocated;
        some_failed_ = some_failed_ || entry.is_recalled;
        entry.is_recalled = false;
        entry.tried = 0;
        entry.saw_busy = false;
    }
    waiting_count_ = 0;
    go_on(now_ms, actions);
}

void GetBatch::release_leases(std::uint64_t now_ms) {
    std::vector<std::string_view> over;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        for (; entries_[i].leases > 0; --entries_[i].leases) over.push_back(keys_[i]);
    }
    if (!over.empty()) cluster_.release(over, now_ms);
}

// ---- where the values are

// Leaves it to be looked up if nothing is remembered, or that does not fit: only a node or the master may say
// so of the value that there is now.
void GetBatch::recall(std::uint32_t index, LocationStamp now) {
    auto& entry = entries_[index];
    Location location;
    if (entry.step != Step::kToLookUp || !cluster_.recall(keys_[index], now, location)) return;
    const auto before = std::exchange(results_[index], {wire::Status::kOk, location.size, location.put_id});
    if (!wire::ok(misfit(index))) {
        results_[index] = before;
        return;
    }
    entry.step = Step::kLocated;
    entry.is_recalled = true;
    entry.first_place = static_cast<std::uint32_t>(places_.size());
    entry.place_count = static_cast<std::uint8_t>(location.place_count);
    places_.insert(places_.end(), location.places.begin(), location.places.begin() + location.place_count);
    ++recalled_count_;
}

void GetBatch::remember(std::uint32_t index, const wire::LookupRecord& record) {
    if (!may_recall_ || record.location_ttl == 0 || record.replica_count > kRememberedPlacesMax) return;
    Location location{record.put_id, record.size, record.replica_count, {}};
    const auto first = places_.begin() + entries_[index].first_place;
    std::copy(first, first + record.replica_count, location.places.begin());
    cluster_.remember(keys_[index], location, asked_at_, record.location_ttl * wire::kLocationTtlUnitMs);
}

void GetBatch::tell_accesses(std::uint64_t now_ms) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        if (!entries_[i].is_recalled || !wire::ok(results_[i].status)) continue;
        entries_[i].is_recalled = false;
        cluster_.recalled_was_read(keys_[i], now_ms);
    }
}

bool GetBatch::ask_lookup(std::uint64_t now_ms, Actions& actions) {
    if (some_failed_) {
        next_to_look_up_ = 0;
        some_failed_ = false;
    }
    asked_.clear();
    asked_keys_.clear();
    std::size_t bytes = 0;
    for (; next_to_look_up_ < keys_.size() && asked_.size() < wire::kBatchKeysMax; ++next_to_look_up_) {
        const auto key = keys_[next_to_look_up_];
        if (entries_[next_to_look_up_].step != Step::kToLookUp) continue;
        if (bytes + key.size() > kLaneBodyBytesMax) break;
        bytes += key.size();
        asked_.push_back(static_cast<std::uint32_t>(next_to_look_up_));
        asked_keys_.push_back(key);
    }
    if (asked_.empty()) return false;
    asked_at_ = cluster_.location_stamp(now_ms);
    std::vector<wire::SegmentId> avoided;
    cluster_.avoid(avoided);
    auto writer = begin_ask(wire::Verb::kLookup, false);
    wire::encode_keys_request(prefix(), avoided, asked_keys_, writer);
    end_ask(actions);
    return true;
}

bool GetBatch::on_answer(wire::Bytes body, std::uint64_t now_ms, Actions& actions) {
    if (lane_verb() == wire::Verb::kSegments) {
        if (!learn_segments(asked_segments_, body)) return false;
        routes_.clear();
    } else if (!on_lookup(body)) {
        return false;
    }
    go_on(now_ms, actions);
    return true;
}

bool GetBatch::on_lookup(wire::Bytes body) {
    const auto reply = wire::Places<wire::LookupRecord>::parse(body);
    if (!reply || reply->count != asked_.size()) return false;
    std::uint32_t place = 0;
    for (std::uint32_t i = 0; i < reply->count; ++i) {
        const auto record = reply->record(i);
        if (record.replica_count > wire::kReplicasMax || record.size > wire::kValueBytesMax) return false;
        const auto first = static_cast<std::uint32_t>(places_.size());
        for (std::uint32_t end = place + record.replica_count; place < end; ++place) {
            places_.push_back(reply->place(place));
        }
        locate(asked_[i], record, first);
    }
    return true;
}

void GetBatch::locate(std::uint32_t index, const wire::LookupRecord& record, std::uint32_t first_place) {
    if (!wire::ok(record.status) || record.replica_count == 0) {
        answer(index, wire::ok(record.status) ? wire::Status::kObjectNotFound : record.status);
        return;
    }
    auto& entry = entries_[index];
    entry.told_the_same = entry.lookups > 0 && is_where_it_was(entry, record, first_place);
    ++entry.lookups;
    entry.step = Step::kLocated;
    entry.first_place = first_place;
    entry.place_count = record.replica_count;
    entry.tried = 0;
    entry.saw_gone = false;
    ++entry.leases;
    results_[index] = {wire::Status::kOk, record.size, record.put_id};
    remember(index, record);
    if (const auto why = misfit(index); !wire::ok(why)) answer(index, why);
}

wire::Status GetBatch::misfit(std::uint32_t index) const {
    const std::uint64_t size = results_[index].length;
    if (!reads_ranges()) {
        const bool fits = capacities_.empty() || size <= capacities_[index];
        return fits ? wire::Status::kOk : wire::Status::kBufferOverflow;
    }
    const auto& range = options_.ranges[index];
    if (range.offset > size || range.length > size - range.offset) return wire::Status::kInvalidParams;
    const bool is_looked_at = size + range.length <= wire::kVerifiedBytesMax;
    return is_looked_at || !options_.checksums ? wire::Status::kOk : wire::Status::kValueTooLarge;
}

bool GetBatch::is_where_it_was(const Entry& entry, const wire::LookupRecord& record,
                               std::uint32_t first_place) const {
    if (entry.place_count != record.replica_count) return false;
    for (std::uint32_t i = 0; i < entry.place_count; ++i) {
        if (places_[entry.first_place + i].replica != places_[first_place + i].replica) return false;
    }
    return true;
}

const Route& GetBatch::route(wire::SegmentId segment) {
    const auto [found, is_new] = routes_.try_emplace(segment);
    if (is_new) found->second = cluster_.route(segment);
    return found->second;
}

bool GetBatch::ask_unknown_segments(Actions& actions) {
    asked_segments_.clear();
    routes_.clear();
    for (const auto& entry : entries_) {
        if (entry.step != Step::kLocated) continue;
        for (std::uint32_t i = 0; i < entry.place_count; ++i) {
            const auto segment = places_[entry.first_place + i].segment;
            auto& known = const_cast<Route&>(route(segment));
            if (known.kind != Route::Kind::kUnknown) continue;
            asked_segments_.push_back(segment);
            known.kind = Route::Kind::kAbsent;  // for this walk: asked about once
        }
    }
    if (asked_segments_.empty()) return false;
    routes_.clear();
    ask_segments(asked_segments_, actions);
    return true;
}

// ---- from which replica to read each

bool GetBatch::plan_reads(std::uint64_t now_ms, Actions& actions) {
    std::vector<PeerPlan> plans;
    for (std::uint32_t i = 0; i < entries_.size(); ++i) {
        auto& entry = entries_[i];
        while (entry.step == Step::kLocated) {
            const int chosen = choose_place(entry, plans);
            if (chosen < 0) {
                const auto why = has_absent_place(entry) ? wire::Status::kGone : wire::Status::kUnreachable;
                entry.tried = 0xFF;
                replica_failed(i, why);
                break;
            }
            entry.tried = static_cast<std::uint8_t>(entry.tried | (1U << chosen));
            const auto& place = places_[entry.first_place + static_cast<std::uint32_t>(chosen)];
            const auto peer = route(place.segment).peer;
            auto plan =
                std::find_if(plans.begin(), plans.end(), [&](const PeerPlan& p) { return p.peer == peer; });
            if (plan == plans.end()) {
                plans.emplace_back().peer = peer;
                plan = plans.end() - 1;
                plan->is_mapped = route(place.segment).is_mapped;
            }
            plan->bytes += wanted_bytes(i);
            plan->values.emplace_back(i, place.replica);
            if (entry.place_count == 1 || choose_place(entry, plans) < 0) plan->has_alternatives = false;
            entry.step = Step::kReading;
        }
    }
    for (const auto& plan : plans) emit_reads(plan, now_ms, actions);
    return !plans.empty();
}

// A segment that left the pool took its replicas with it.
bool GetBatch::has_absent_place(const Entry& entry) {
    for (std::uint32_t i = 0; i < entry.place_count; ++i) {
        if (route(places_[entry.first_place + i].segment).kind == Route::Kind::kAbsent) return true;
    }
    return false;
}

// The best untried replica that can be reached: on this host, else at the peer with the least to do in this
// batch, ties by chance. -1: none.
int GetBatch::choose_place(const Entry& entry, const std::vector<PeerPlan>& plans) {
    int best = -1;
    std::uint64_t best_load = 0;
    bool best_is_here = false;
    // One pass from a random start makes ties fall by chance.
    const auto count = entry.place_count;
    const auto start = count > 1 ? static_cast<std::uint32_t>(cluster_.random() % count) : 0;
    for (std::uint32_t step = 0; step < count; ++step) {
        const auto i = (start + step) % count;
        if ((entry.tried >> i & 1) != 0) continue;
        const auto& to = route(places_[entry.first_place + i].segment);
        if (to.kind != Route::Kind::kReachable) continue;
        std::uint64_t load = 0;
        for (const auto& plan : plans) {
            if (plan.peer == to.peer) load = plan.bytes;
        }
        if (best < 0 || (to.same_host && !best_is_here) ||
            (to.same_host == best_is_here && load < best_load)) {
            best = static_cast<int>(i);
            best_load = load;
            best_is_here = to.same_host;
        }
    }
    return best;
}

void GetBatch::emit_reads(const PeerPlan& plan, std::uint64_t now_ms, Actions& actions) {
    const std::uint64_t stripe_bytes =
        plan.bytes > kStripeBytesMin && !plan.is_mapped && !options_.whole
            ? (plan.bytes / 2 + kStripeAlignBytes - 1) / kStripeAlignBytes * kStripeAlignBytes
            : plan.bytes;
    std::size_t next = 0;
    while (next < plan.values.size()) {
        const auto ticket = static_cast<Ticket>(reads_.size());
        auto& read = reads_.emplace_back();
        read.peer = plan.peer;
        read.checksums = options_.checksums;
        // While another replica could still be asked, a silent peer gets half of the time that is left.
        read.deadline_ms = plan.has_alternatives ? now_ms + (deadline_ms() - now_ms) / 2 : deadline_ms();
        add_parts(plan, next, stripe_bytes, read, items_scratch_);
        wire::FrameHeader header;
        header.verb = wire::Verb::kRead;
        wire::begin_frame(read.frame, header);
        wire::Writer writer(read.frame);
        std::uint32_t flags = options_.user_metadata ? wire::kReadUserMetadata : 0U;
        if (reads_ranges() && options_.checksums) flags |= wire::kReadVerified;
        wire::encode_read(flags, items_scratch_, writer);
        wire::finish_frame(read.frame, 0);
        ++open_reads_;
        actions.reads.push_back(ticket);
    }
}

// Fills one request with up to `bytes`, cutting the value at its end if that is worth it.
void GetBatch::add_parts(const PeerPlan& plan, std::size_t& next, std::uint64_t bytes, NodeRead& read,
                         std::vector<wire::ReadItem>& items) {
    items.clear();
    if (reads_ranges()) return add_ranges(plan, next, bytes, read, items);
    while (next < plan.values.size() && items.size() < wire::kBatchKeysMax) {
        const auto [index, replica] = plan.values[next];
        auto& entry = entries_[index];
        const auto size = results_[index].length;
        const auto rest = size - entry.offset_next;
        const auto room = bytes - std::min(bytes, read.bytes);
        if (room == 0 && !items.empty() && rest > 0) return;
        auto length = rest;
        if (rest > room && room >= kStripeAlignBytes) length = room / kStripeAlignBytes * kStripeAlignBytes;
        const auto digest = wire::key_digest(cluster_.tenant(), keys_[index]);
        items.push_back({replica, digest, entry.offset_next, length});
        const auto& result = results_[index];
        const auto seed = entry.offset_next == 0 && options_.checksums
                              ? wire::value_checksum_seed(cluster_.tenant(), keys_[index], result.put_id)
                              : 0;
        read.parts.push_back({index, seed, entry.offset_next, length});
        read.bytes += length;
        ++entry.open_parts;
        if (length < rest) {
            entry.offset_next += length;
            return;
        }
        entry.offset_next = 0;
        ++next;
    }
}

// None is cut, and a request has no more than its node will look at.
void GetBatch::add_ranges(const PeerPlan& plan, std::size_t& next, std::uint64_t bytes, NodeRead& read,
                          std::vector<wire::ReadItem>& items) {
    std::uint64_t looked_at = 0;
    for (; next < plan.values.size() && items.size() < wire::kBatchKeysMax; ++next) {
        const auto [index, replica] = plan.values[next];
        const auto& range = options_.ranges[index];
        const bool is_new = items.empty() || items.back().replica != replica;
        looked_at += range.length + (is_new ? results_[index].length : 0);
        const bool is_full = read.bytes + range.length > bytes || looked_at > wire::kVerifiedBytesMax;
        if (is_full && !items.empty()) return;
        const auto digest = wire::key_digest(cluster_.tenant(), keys_[index]);
        items.push_back({replica, digest, range.offset, range.length});
        read.parts.push_back({index, 0, 0, range.length});
        read.bytes += range.length;
        ++entries_[index].open_parts;
    }
}

// ---- what came

void GetBatch::on_read_done(Ticket ticket, std::span<PartAnswer> answers, std::uint64_t now_ms,
                            Actions& actions) {
    if (done()) return;
    const auto& read = reads_[ticket];
    cluster_.peer_answered(read.peer);
    for (std::size_t i = 0; i < read.parts.size(); ++i) settle_part(read.parts[i], answers[i]);
    --open_reads_;
    go_on(now_ms, actions);
}

void GetBatch::on_read_failed(Ticket ticket, std::span<PartAnswer> answers, Failure failure,
                              std::string_view why, std::uint64_t now_ms, Actions& actions) {
    if (done()) return;
    const auto& read = reads_[ticket];
    set_why(why);
    if (failure == Failure::kBroken && !read.fresh_connection) {
        repeat_on_fresh(ticket, answers, actions);
        return;
    }
    cluster_.peer_failed(read.peer, failure, now_ms);
    for (std::size_t i = 0; i < read.parts.size(); ++i) {
        // What a peer that went silent or away did not give is as absent as what it is not asked for.
        auto& status = answers[i].verdict.status;
        if (status == wire::Status::kTransferFail && failure == Failure::kNotSent) {
            status = wire::Status::kBusy;
        } else if (status == wire::Status::kTransferFail && failure != Failure::kMalformed) {
            status = wire::Status::kUnreachable;
        }
        settle_part(read.parts[i], answers[i]);
    }
    --open_reads_;
    go_on(now_ms, actions);
}

// The connection may have died while nobody used it: what has not come is asked for once more on a new one.
void GetBatch::repeat_on_fresh(Ticket ticket, std::span<PartAnswer> answers, Actions& actions) {
    const auto again = static_cast<Ticket>(reads_.size());
    auto& repeated = reads_.emplace_back();
    const auto& read = reads_[ticket];
    wire::Reader frame(wire::Bytes(read.frame).subspan(wire::kFrameHeaderBytes));
    const auto asked = wire::parse_read(frame.bytes(frame.remaining()));
    items_scratch_.clear();
    for (std::size_t i = 0; i < read.parts.size(); ++i) {
        if (answers[i].verdict.status != wire::Status::kTransferFail) {
            settle_part(read.parts[i], answers[i]);
            continue;
        }
        items_scratch_.push_back(asked->items[i]);
        repeated.parts.push_back(read.parts[i]);
        repeated.bytes += read.parts[i].length;
    }
    repeated.peer = read.peer;
    repeated.fresh_connection = true;
    repeated.checksums = read.checksums;
    repeated.deadline_ms = read.deadline_ms;
    wire::FrameHeader header;
    header.verb = wire::Verb::kRead;
    wire::begin_frame(repeated.frame, header);
    wire::Writer writer(repeated.frame);
    wire::encode_read(asked->flags, items_scratch_, writer);
    wire::finish_frame(repeated.frame, 0);
    actions.reads.push_back(again);
}

void GetBatch::settle_part(const ReadPart& part, PartAnswer& answer) {
    auto& entry = entries_[part.index];
    if (entry.step != Step::kReading) return;
    if (!wire::ok(answer.verdict.status)) {
        entry.error = answer.verdict.status;
    } else {
        entry.has_checksum = answer.verdict.has_checksum != 0;
        entry.checksum = answer.verdict.checksum;
        entry.received_checksum = answer.checksum;
        if (part.length != wanted_bytes(part.index)) {
            stripes_.push_back({part.index, answer.checksum, part.offset, part.length});
        }
        if (options_.user_metadata && part.offset == 0)
            user_metadata_[part.index] = std::move(answer.user_metadata);
    }
    if (--entry.open_parts == 0) judge(part.index);
}

void GetBatch::judge(std::uint32_t index) {
    auto& entry = entries_[index];
    auto status = entry.error;
    if (wire::ok(status) && options_.checksums && entry.has_checksum && !checksum_matches(index)) {
        status = wire::Status::kChecksumMismatch;
    }
    std::erase_if(stripes_, [index](const Stripe& stripe) { return stripe.index == index; });
    entry.error = wire::Status::kOk;
    if (wire::ok(status)) {
        answer(index, wire::Status::kOk);
    } else {
        entry.step = Step::kLocated;
        replica_failed(index, status);
    }
}

bool GetBatch::checksum_matches(std::uint32_t index) {
    const auto& entry = entries_[index];
    std::sort(stripes_.begin(), stripes_.end(),
              [](const Stripe& a, const Stripe& b) { return a.offset < b.offset; });
    std::uint32_t checksum = entry.received_checksum;
    bool is_striped = false;
    for (const auto& stripe : stripes_) {
        if (stripe.index != index) continue;
        checksum =
            is_striped ? wire::crc32c_combine(checksum, stripe.checksum, stripe.length) : stripe.checksum;
        is_striped = true;
    }
    return checksum == entry.checksum;
}

void GetBatch::replica_failed(std::uint32_t index, wire::Status status) {
    auto& entry = entries_[index];
    // Bytes that do not match outrank every other reason; then that a replica is gone.
    if (is_gone(status)) entry.saw_gone = true;
    if (status == wire::Status::kBusy) entry.saw_busy = true;
    if (results_[index].status != wire::Status::kChecksumMismatch || is_gone(status))
        results_[index].status = status;
    const auto all = static_cast<std::uint8_t>((1U << entry.place_count) - 1);
    if ((entry.tried & all) != all) return;  // plan_reads takes the next one
    if (entry.saw_busy) {
        entry.step = Step::kWaiting;
        ++waiting_count_;
        return;
    }
    if (entry.is_recalled) {  // whatever it was: the master may know better by now
        cluster_.recalled_was_stale(keys_[index]);
        entry.is_recalled = false;
        entry.step = Step::kToLookUp;
        results_[index] = {};
        some_failed_ = true;
        return;
    }
    if (entry.saw_gone && !entry.told_the_same && entry.lookups < kLookupsMax) {
        entry.step = Step::kToLookUp;
        some_failed_ = true;
        return;
    }
    answer(index, entry.saw_gone ? wire::Status::kObjectNotFound : results_[index].status);
}

}  // namespace mooncake::client
