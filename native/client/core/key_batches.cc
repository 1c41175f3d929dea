#include "client/core/key_batches.h"

namespace mooncake::client {

KeyBatch::KeyBatch(Cluster& cluster, std::uint64_t deadline_ms, wire::Verb verb, std::uint32_t flags,
                   std::span<const std::string_view> keys)
    : Operation(cluster, deadline_ms), verb_(verb), flags_(flags), keys_(keys), statuses_(keys.size()) {}

void KeyBatch::ask_next(std::uint64_t, Actions& actions) {
    asked_.clear();
    asked_keys_.clear();
    answered_ = next_;
    std::size_t bytes = 0;
    for (; next_ < keys_.size() && asked_.size() < wire::kBatchKeysMax; ++next_) {
        const auto key = keys_[next_];
        if (!wire::is_valid_key(key)) {
            statuses_[next_] = wire::Status::kInvalidKey;
            continue;
        }
        if (bytes + key.size() > kLaneBodyBytesMax) break;
        bytes += key.size();
        asked_.push_back(static_cast<std::uint32_t>(next_));
        asked_keys_.push_back(key);
    }
    if (asked_.empty()) {
        answered_ = keys_.size();
        finish();
        return;
    }
    std::vector<wire::SegmentId> avoided;
    if (verb_ == wire::Verb::kExists) cluster_.avoid(avoided);
    auto writer = begin_ask(verb_, verb_ == wire::Verb::kRemove);
    wire::Prefix flagged = prefix();
    flagged.flags = flags_;
    wire::encode_keys_request(flagged, avoided, asked_keys_, writer);
    end_ask(actions);
}

bool KeyBatch::on_answer(wire::Bytes body, std::uint64_t now_ms, Actions& actions) {
    const auto statuses = wire::parse_statuses(body);
    if (!statuses || statuses->size() != asked_.size()) return false;
    for (std::size_t i = 0; i < asked_.size(); ++i) statuses_[asked_[i]] = (*statuses)[i];
    ask_next(now_ms, actions);
    return true;
}

void KeyBatch::on_refused(wire::Status status, std::uint64_t, Actions&) { give_up(status); }

void KeyBatch::answer_rest(wire::Status status) {
    for (std::size_t i = answered_; i < keys_.size(); ++i) {
        if (wire::is_valid_key(keys_[i])) {
            statuses_[i] = status;
        } else {
            statuses_[i] = wire::Status::kInvalidKey;
        }
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
