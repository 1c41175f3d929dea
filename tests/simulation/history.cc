#include "history.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "journal.h"

namespace simulation {

namespace wire = mooncake::wire;
using wire::PutId;

namespace {

// The master's clock is read every 50 ms, and a TTL counts from the commit, which is before its answer.
constexpr Ms kTtlSlackMs = 100;

constexpr std::array<const char*, wire::kAbsences> kReasons{
    "present",   "never stored", "evicted",    "removed",     "expired",         "lost",
    "abandoned", "not ready",    "rebuilding", "unreachable", "another tenant's"};

std::uint64_t now_step() { return World::current()->step(); }
std::string text(PutId put_id) { return "value " + id_text(put_id); }

}  // namespace

void History::granted(const std::string& key, PutId put_id, const Put& put,
                      std::vector<mooncake::wire::ReplicaId> replicas) {
    if (places_.contains(put_id)) return;
    auto& values = keys_[key].values;
    places_[put_id] = {key, values.size()};
    Value value;
    value.put_id = put_id;
    value.put = put;
    value.replicas = std::move(replicas);
    value.granted = now_step();
    value.losses_before = losses_();
    values.push_back(value);
}

History::Value* History::find(PutId put_id) {
    const auto found = places_.find(put_id);
    return found == places_.end() ? nullptr : &keys_[found->second.first].values[found->second.second];
}

const std::string* History::key_of(PutId put_id) const {
    const auto found = places_.find(put_id);
    return found == places_.end() ? nullptr : &found->second.first;
}

// Whoever began then must not read the value any more, because of this end.
bool History::is_ended(const Value& value, const End& end, std::uint64_t began) {
    return end.is_sure && end.by != value.put_id && end.answered < began && value.committed != kNotYet &&
           value.committed < end.sent;
}

void History::commit_sent(PutId put_id) {
    Value* value = find(put_id);
    if (value == nullptr || value->sent != kNotYet) return;
    value->sent = now_step();
    // A node may have crashed with the bytes before their commit was sent.
    const std::uint64_t crashes = value->losses_before.crashes;
    value->losses_before = losses_();
    value->losses_before.crashes = crashes;
}

void History::commit_answered(PutId put_id, bool is_visible) {
    Value* value = find(put_id);
    if (value == nullptr) return;
    if (value->answered == kNotYet) value->answered = now_step();
    // Of two masters one rules nothing: what it commits may be unknown to the other.
    if (has_two_masters_()) value->may_be_revoked = true;
    if (!is_visible || value->is_acknowledged) return;
    value->is_acknowledged = true;
    if (value->committed == kNotYet) {
        value->committed = now_step();
        value->committed_ms = World::current()->now_ms();
    }
    keys_[*key_of(put_id)].ends.push_back({put_id, value->sent, now_step(), !has_two_masters_()});
}

void History::revoke_sent(PutId put_id) {
    if (Value* value = find(put_id)) value->may_be_revoked = true;
}

std::size_t History::remove_sent(const std::string& key) {
    auto& ends = keys_[key].ends;
    ends.push_back({0, now_step(), kNotYet, false});
    return ends.size() - 1;
}

void History::remove_answered(const std::string& key, std::size_t remove, bool is_removed) {
    End& end = keys_[key].ends[remove];
    if (end.answered != kNotYet) return;
    end.answered = now_step();
    end.is_sure = is_removed && !has_two_masters_();
}

std::uint64_t History::may_be_visible(const Value& value) const {
    return value.sent == kNotYet && losses_().reigns > 1 ? value.granted : value.sent;
}

std::string History::ended(const Key& key, const Value& value, std::uint64_t began, Ms began_ms) const {
    for (const End& end : key.ends) {
        if (!is_ended(value, end, began)) continue;
        const std::string what = end.by == 0 ? "a remove" : text(end.by);
        return text(value.put_id) + ", committed by step " + std::to_string(value.committed) +
               ", was ended by " + what + ", sent at step " + std::to_string(end.sent) + " and answered at " +
               std::to_string(end.answered) + ", before step " + std::to_string(began);
    }
    if (value.put.ttl_ms != 0 && value.committed_ms != kNever &&
        losses_().reigns == value.losses_before.reigns && losses_().stops == value.losses_before.stops &&
        began_ms > value.committed_ms + value.put.ttl_ms + kTtlSlackMs) {
        return text(value.put_id) + ", committed by " + std::to_string(value.committed_ms) +
               " ms, had a TTL of " + std::to_string(value.put.ttl_ms) + " ms, over at " +
               std::to_string(began_ms) + " ms";
    }
    return {};
}

std::string History::hit(const std::string& key, PutId put_id, std::uint64_t began, Ms began_ms) {
    Value* value = find(put_id);
    if (value == nullptr || *key_of(put_id) != key) return text(put_id) + " was never granted for this key";
    if (may_be_visible(*value) == kNotYet) return text(put_id) + " was never committed";
    if (value->sent == kNotYet) value->sent = value->granted;
    Key& all = keys_[key];
    std::string why = ended(all, *value, began, began_ms);
    if (!why.empty() || value->committed != kNotYet) return why;
    // Its commit's answer has not been seen, but there it is. Another master may have taken it in before its
    // commit was sent.
    value->committed = now_step();
    value->committed_ms = World::current()->now_ms();
    const std::uint64_t since = losses_().reigns > 1 ? value->granted : value->sent;
    all.ends.push_back({put_id, since, now_step(), !has_two_masters_() && !places_are_remembered_});
    return {};
}

std::string History::present(const std::string& key, std::uint64_t began, Ms began_ms) const {
    const auto found = keys_.find(key);
    std::string why = "none was ever committed";
    if (found == keys_.end()) return why;
    for (const Value& value : found->second.values) {
        if (may_be_visible(value) == kNotYet) continue;
        why = ended(found->second, value, began, began_ms);
        if (why.empty()) return {};
    }
    return why;
}

// Nobody else's remove or commit can have come after its commit.
bool History::is_undisputed(const Key& key, const Value& value) const {
    if (value.may_be_revoked || value.put.ttl_ms != 0) return false;
    for (const End& end : key.ends) {
        if (end.by != value.put_id && (end.answered == kNotYet || end.answered > value.sent)) return false;
    }
    return std::all_of(key.values.begin(), key.values.end(), [&](const Value& other) {
        return other.put_id == value.put_id || other.sent == kNotYet || other.answered < value.sent;
    });
}

bool History::is_excused(const Value& value, const Losses& now, wire::Absence reason) {
    const Losses& before = value.losses_before;
    const bool may_be_evicted = !value.put.is_hard_pinned && now.evicted != before.evicted;
    const bool may_be_lost = now.lost != before.lost || now.expelled != before.expelled ||
                             now.refused != before.refused || now.fences != before.fences ||
                             now.crashes != before.crashes || now.give_ups != before.give_ups ||
                             now.takeovers != before.takeovers;
    switch (reason) {
        case wire::Absence::kEvicted:
            return may_be_evicted || now.takeovers != before.takeovers;
        case wire::Absence::kRemoved:
        case wire::Absence::kExpired:
            return now.takeovers != before.takeovers;
        case wire::Absence::kNeverStored:
            // A master forgets nothing that ended in its own reign.
            return (may_be_lost || may_be_evicted) && now.reigns != before.reigns;
        default:
            return may_be_evicted || may_be_lost;
    }
}

std::string History::miss(const std::string& key, std::uint64_t began, wire::Absence reason) {
    const auto found = keys_.find(key);
    if (found == keys_.end()) return {};
    for (const Value& value : found->second.values) {
        if (value.committed >= began || !is_undisputed(found->second, value)) continue;
        if (is_excused(value, losses_(), reason)) continue;
        const std::string what = (value.put.is_hard_pinned ? "hard-pinned " : "") + text(value.put_id);
        return what + ", committed by step " + std::to_string(value.committed) +
               ", is gone although nothing that befell it since explains that (the master says: " +
               std::string(kReasons[static_cast<std::size_t>(reason)]) + ")";
    }
    ++misses_judged_;
    return {};
}

}  // namespace simulation
