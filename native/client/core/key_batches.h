// The operations that only ask the master: exists, remove, touch, match_prefix, and single questions (list,
// segments, stats).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "client/core/operation.h"

namespace mooncake::client {

// The keys of one request after the other: as many as it may carry, without those that cannot be keys.
struct KeySlice {
    std::size_t next = 0;              // the first key not yet asked about
    std::size_t answered = 0;          // keys below it have their answer
    std::vector<std::uint32_t> asked;  // keys of the request under way
    std::vector<std::string_view> asked_keys;

    // Takes the next ones; refuse(i) for each that cannot be a key. False: there are none.
    template <class Refuse>
    bool take(std::span<const std::string_view> keys, Refuse&& refuse) {
        asked.clear();
        asked_keys.clear();
        answered = next;
        std::size_t bytes = 0;
        for (; next < keys.size() && asked.size() < wire::kBatchKeysMax; ++next) {
            const auto key = keys[next];
            if (!wire::is_valid_key(key)) {
                refuse(next);
                continue;
            }
            if (bytes + key.size() > kLaneBodyBytesMax) break;
            bytes += key.size();
            asked.push_back(static_cast<std::uint32_t>(next));
            asked_keys.push_back(key);
        }
        if (asked.empty()) answered = keys.size();
        return !asked.empty();
    }
};

// exists, remove or touch of any number of keys: one status a key, in order. Keys that cannot be keys are
// answered INVALID_KEY here and never sent.
class KeyBatch final : public Operation {
  public:
    // `keys` and `segments` must stay valid until done(). flags: wire::RequestFlags; segments: those of
    // kRemoveCopies.
    KeyBatch(Cluster& cluster, std::uint64_t deadline_ms, wire::Verb verb, std::uint32_t flags,
             std::span<const std::string_view> keys, std::span<const wire::SegmentId> segments = {});

    const std::vector<wire::Status>& statuses() const { return statuses_; }

  private:
    void begin(std::uint64_t now_ms, Actions& actions) override { ask_next(now_ms, actions); }
    bool on_answer(wire::Bytes body, std::uint64_t now_ms, Actions& actions) override;
    void on_refused(wire::Status status, std::uint64_t now_ms, Actions& actions) override;
    void answer_rest(wire::Status status) override;
    void ask_next(std::uint64_t now_ms, Actions& actions);

    wire::Verb verb_;
    std::uint32_t flags_;
    std::span<const std::string_view> keys_;
    std::span<const wire::SegmentId> segments_;
    std::vector<wire::Status> statuses_;
    KeySlice slice_;
};

// Where values lie, without the wish to read them: nothing is leased, touched or counted.
class LocateBatch final : public Operation {
  public:
    struct Located {
        wire::Status status = wire::Status::kDeadline;
        std::uint64_t size = 0;
        std::vector<wire::ReplicaPlace> places;
    };
    // `keys` must stay valid until done().
    LocateBatch(Cluster& cluster, std::uint64_t deadline_ms, std::span<const std::string_view> keys);

    std::vector<Located>& located() { return located_; }

  private:
    void begin(std::uint64_t, Actions& actions) override { ask_next(actions); }
    bool on_answer(wire::Bytes body, std::uint64_t now_ms, Actions& actions) override;
    void on_refused(wire::Status status, std::uint64_t, Actions&) override { give_up(status); }
    void answer_rest(wire::Status status) override;
    void ask_next(Actions& actions);

    std::span<const std::string_view> keys_;
    std::vector<Located> located_;
    KeySlice slice_;
};

// How many keys from the first on are present, and why the next one is not.
class MatchPrefix final : public Operation {
  public:
    MatchPrefix(Cluster& cluster, std::uint64_t deadline_ms, std::uint32_t flags,
                std::span<const std::string_view> keys);

    std::uint32_t length() const { return length_; }
    wire::Status status() const { return status_; }  // of the question; OK with a miss
    wire::Status miss() const { return miss_; }      // OK: none is missing

  private:
    void begin(std::uint64_t now_ms, Actions& actions) override { ask_next(now_ms, actions); }
    bool on_answer(wire::Bytes body, std::uint64_t now_ms, Actions& actions) override;
    void on_refused(wire::Status status, std::uint64_t now_ms, Actions& actions) override;
    void answer_rest(wire::Status status) override { status_ = status; }
    void ask_next(std::uint64_t now_ms, Actions& actions);

    std::uint32_t flags_;
    std::span<const std::string_view> keys_;
    std::size_t asked_count_ = 0;
    std::uint32_t length_ = 0;
    wire::Status status_ = wire::Status::kOk;
    wire::Status miss_ = wire::Status::kOk;
};

// One question, its body encoded by `encode(prefix, writer)`; the answer's body as it came.
template <class Encode>
class Question final : public Operation {
  public:
    Question(Cluster& cluster, std::uint64_t deadline_ms, wire::Verb verb, bool mutating, Encode encode)
        : Operation(cluster, deadline_ms), verb_(verb), mutating_(mutating), encode_(encode) {}

    wire::Status status() const { return status_; }
    const wire::Buffer& body() const { return body_; }

  private:
    void begin(std::uint64_t, Actions& actions) override {
        auto writer = begin_ask(verb_, mutating_);
        encode_(prefix(), writer);
        end_ask(actions);
    }
    bool on_answer(wire::Bytes body, std::uint64_t, Actions&) override {
        body_.assign(body.begin(), body.end());
        status_ = wire::Status::kOk;
        finish();
        return true;
    }
    void on_refused(wire::Status status, std::uint64_t, Actions&) override {
        status_ = status;
        finish();
    }
    void answer_rest(wire::Status status) override { status_ = status; }

    wire::Verb verb_;
    bool mutating_;
    Encode encode_;
    wire::Status status_ = wire::Status::kRpcFail;
    wire::Buffer body_;
};

}  // namespace mooncake::client
