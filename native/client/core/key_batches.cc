#include "client/core/key_batches.h"

namespace mooncake::client {

KeyBatch::KeyBatch(Cluster& cluster, std::uint64_t deadline_ms, wire::Verb verb, std::uint32_t flags,
                   std::span<const std::string_view> keys, std::span<const wire::SegmentId> segments)
    : Operation(cluster, deadline_ms),
      verb_(verb),
      flags_(flags),
      keys_(keys),
      segments_(segments),
      statuses_(keys.size()) {}

void KeyBatch::ask_next(std::uint64_t, Actions& actions) {
    if (!slice_.take(keys_, [&](std::size_t i) { statuses_[i] = wire::Status::kInvalidKey; })) {
        finish();
        return;
    }
    std::vector<wire::SegmentId> listed(segments_.begin(), segments_.end());
    if (verb_ == wire::Verb::kExists) cluster_.avoid(listed);
    auto writer = begin_ask(verb_, verb_ == wire::Verb::kRemove);
    wire::Prefix flagged = prefix();
    flagged.flags = flags_;
    wire::encode_keys_request(flagged, listed, slice_.asked_keys, writer);
    end_ask(actions);
}

bool KeyBatch::on_answer(wire::Bytes body, std::uint64_t now_ms, Actions& actions) {
    const auto statuses = wire::parse_statuses(body);
    const auto& asked = slice_.asked;
    if (!statuses || statuses->size() != asked.size()) return false;
    for (std::size_t i = 0; i < asked.size(); ++i) statuses_[asked[i]] = (*statuses)[i];
    if (verb_ == wire::Verb::kRemove) cluster_.bar(slice_.asked_keys, now_ms);
    ask_next(now_ms, actions);
    return true;
}

void KeyBatch::on_refused(wire::Status status, std::uint64_t, Actions&) { give_up(status); }

void KeyBatch::answer_rest(wire::Status status) {
    for (std::size_t i = slice_.answered; i < keys_.size(); ++i) {
        statuses_[i] = wire::is_valid_key(keys_[i]) ? status : wire::Status::kInvalidKey;
    }
}

LocateBatch::LocateBatch(Cluster& cluster, std::uint64_t deadline_ms, std::span<const std::string_view> keys)
    : Operation(cluster, deadline_ms), keys_(keys), located_(keys.size()) {}

void LocateBatch::ask_next(Actions& actions) {
    if (!slice_.take(keys_, [&](std::size_t i) { located_[i].status = wire::Status::kInvalidKey; })) {
        finish();
        return;
    }
    std::vector<wire::SegmentId> avoided;
    cluster_.avoid(avoided);
    auto writer = begin_ask(wire::Verb::kLookup, false);
    wire::Prefix flagged = prefix();
    flagged.flags = wire::kWithoutHold;
    wire::encode_keys_request(flagged, avoided, slice_.asked_keys, writer);
    end_ask(actions);
}

bool LocateBatch::on_answer(wire::Bytes body, std::uint64_t, Actions& actions) {
    const auto reply = wire::Places<wire::LookupRecord>::parse(body);
    if (!reply || reply->count != slice_.asked.size()) return false;
    std::size_t place = 0;
    for (std::uint32_t i = 0; i < reply->count; ++i) {
        const auto record = reply->record(i);
        auto& located = located_[slice_.asked[i]];
        located.status = record.status;
        located.size = record.size;
        for (std::size_t end = place + record.replica_count; place < end; ++place) {
            located.places.push_back(reply->place(place));
        }
    }
    ask_next(actions);
    return true;
}

void LocateBatch::answer_rest(wire::Status status) {
    for (std::size_t i = slice_.answered; i < keys_.size(); ++i) {
        located_[i] = {wire::is_valid_key(keys_[i]) ? status : wire::Status::kInvalidKey, 0, {}};
    }
}

MatchPrefix::MatchPrefix(Cluster& cluster, std::uint64_t deadline_ms, std::uint32_t flags,
                         std::span<const std::string_view> keys)
    : Operation(cluster, deadline_ms), flags_(flags), keys_(keys) {}

void MatchPrefix::ask_next(std::uint64_t, Actions& actions) {
    std::size_t bytes = 0;
    asked_count_ = 0;
    while (length_ + asked_count_ < keys_.size() && asked_count_ < wire::kBatchKeysMax) {
        const auto key = keys_[length_ + asked_count_];
        if (!wire::is_valid_key(key) || bytes + key.size() > kLaneBodyBytesMax) break;
        bytes += key.size();
        ++asked_count_;
    }
    if (asked_count_ == 0) {
        if (length_ < keys_.size()) miss_ = wire::Status::kInvalidKey;
        finish();
        return;
    }
    std::vector<wire::SegmentId> avoided;
    cluster_.avoid(avoided);
    auto writer = begin_ask(wire::Verb::kMatchPrefix, false);
    wire::Prefix flagged = prefix();
    flagged.flags = flags_;
    wire::encode_keys_request(flagged, avoided, keys_.subspan(length_, asked_count_), writer);
    end_ask(actions);
}

bool MatchPrefix::on_answer(wire::Bytes body, std::uint64_t now_ms, Actions& actions) {
    wire::Reader reader(body);
    const auto reply = reader.get<wire::MatchPrefixReply>();
    if (!reader.finished() || reply.length > asked_count_) return false;
    length_ += reply.length;
    if (reply.length < asked_count_) {
        miss_ = reply.miss;
        finish();
        return true;
    }
    ask_next(now_ms, actions);
    return true;
}

void MatchPrefix::on_refused(wire::Status status, std::uint64_t, Actions&) {
    status_ = status;
    finish();
}

}  // namespace mooncake::client
