#include "replay/replay.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/digest.h"
#include "wire/range_bytes.h"

namespace mooncake::replay {

namespace {

constexpr std::uint64_t kBeatMs = 1'000;  // of sessions, and of ticks while a trace pauses
constexpr const char* kTenant = "default";

metadata::Options without_watermark(metadata::Options options) {
    options.eviction_high_watermark_ratio = 1.0;
    options.max_keys = ~std::uint64_t{0};
    options.max_metadata_bytes = ~std::uint64_t{0};
    return options;
}

// Keys are the blocks' numbers, in four bytes.
std::string_view key_of(const std::uint32_t& block) {
    return {reinterpret_cast<const char*>(&block), sizeof(block)};
}

}  // namespace

Replay::Replay(metadata::Options options, std::uint64_t capacity_blocks, std::uint64_t block_bytes)
    : machine_(without_watermark(options), 1, wire::Uuid{1}, 1), block_bytes_(block_bytes) {
    client_ = open_session(1, "replayed client");
    node_ = open_session(2, "replayed node");
    wire::SegmentDescription segment;
    segment.capacity_bytes = capacity_blocks * wire::range_bytes(block_bytes, wire::Tier::kDram);
    segment.incarnation = wire::Uuid{3};
    segment.name = "replayed";
    segment.host_id = "replay";
    segment.endpoints = {"tcp://127.0.0.1:1"};
    body_.clear();
    wire::Writer writer(body_);
    wire::encode_mount(prefix(node_, true), {}, std::span(&segment, 1), writer);
    const auto answers = wire::parse_mount_reply(ask(wire::Verb::kMount, body_));
    assert(answers && answers->size() == 1 && wire::ok(answers->front().status));
    // From here on nothing is rebuilt any more.
    const std::uint64_t ready_ms = now_ms_ + 3 * options.client_ttl_ms;
    while (now_ms_ < ready_ms) advance(trace_ms_ + kBeatMs);
    trace_ms_ = 0;
}

wire::Prefix Replay::prefix(wire::SessionId session, bool mutates) {
    return {session, mutates ? ++sequence_ : 0, 0, 0};
}

wire::Buffer Replay::ask(wire::Verb verb, wire::Bytes body) {
    auto command = metadata::Metadata::command(verb, body);
    while (!command.done()) {
        const bool paused = machine_.step(command, now_ms_, effects_);
        // What waits for space that nothing will give has no place: the pool is smaller than one request.
        if (paused && !command.done() && effects_.empty()) machine_.refuse_waiting(command, now_ms_);
        carry_out();
    }
    assert(wire::ok(command.status()));
    return command.take_body();
}

wire::SessionId Replay::open_session(std::uint8_t number, const char* name) {
    wire::OpenSession message;
    message.process = wire::Uuid{number};
    message.name = name;
    message.host_id = "replay";
    message.tenant = kTenant;
    body_.clear();
    wire::Writer writer(body_);
    wire::encode(message, writer);
    const auto reply = wire::parse_open_session_reply(ask(wire::Verb::kOpenSession, body_));
    assert(reply);
    return reply->session;
}

void Replay::heartbeat(wire::SessionId session) {
    body_.clear();
    wire::Writer writer(body_);
    wire::encode_heartbeat(prefix(session, false), {}, {}, writer);
    ask(wire::Verb::kHeartbeat, body_);
}

void Replay::advance(std::uint64_t at_ms) {
    std::uint64_t pause_ms = at_ms > trace_ms_ ? std::min(at_ms - trace_ms_, kPauseMaxMs) : 0;
    trace_ms_ = std::max(trace_ms_, at_ms);
    while (pause_ms > 0) {
        const std::uint64_t step_ms = std::min(pause_ms, kBeatMs);
        const bool is_beat = (now_ms_ + step_ms) / kBeatMs != now_ms_ / kBeatMs;
        pause_ms -= step_ms;
        now_ms_ += step_ms;
        if (!is_beat) continue;
        heartbeat(client_);
        heartbeat(node_);
        while (!machine_.tick(now_ms_, effects_)) carry_out();
        carry_out();
    }
}

void Replay::carry_out() {
    std::vector<wire::ReplicaId> gone;
    for (const auto& effect : effects_) {
        if (effect.kind == metadata::Effect::Kind::kRetire) gone.push_back(effect.replica);
    }
    effects_.clear();
    if (gone.empty()) return;
    machine_.retire_confirmed(node_, ++retires_, gone, true);
    machine_.freed(gone, effects_);
    effects_.clear();  // that space returned
}

void Replay::request(std::span<const std::uint32_t> blocks, std::uint64_t at_ms) {
    if (!has_begun_) trace_ms_ = at_ms;
    has_begun_ = true;
    advance(at_ms);
    std::vector<std::string_view> keys;
    std::vector<std::uint64_t> parents;
    hit_.clear();
    for (std::size_t i = 0; i < blocks.size(); i += wire::kBatchKeysMax) {
        keys.clear();
        const std::size_t end = std::min(blocks.size(), i + wire::kBatchKeysMax);
        for (std::size_t j = i; j < end; ++j) keys.push_back(key_of(blocks[j]));
        read(keys);
    }
    const auto first_miss = std::find(hit_.begin(), hit_.end(), 0);
    ++score_.requests;
    score_.accesses += blocks.size();
    score_.hits += static_cast<std::uint64_t>(std::count(hit_.begin(), hit_.end(), 1));
    score_.prefix_hits += static_cast<std::uint64_t>(first_miss - hit_.begin());
    keys.clear();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (hit_[i] != 0) continue;
        keys.push_back(key_of(blocks[i]));
        parents.push_back(i == 0 ? 0 : wire::key_digest(kTenant, key_of(blocks[i - 1])));
        if (keys.size() == wire::kBatchKeysMax) {
            put(keys, parents);
            keys.clear();
            parents.clear();
        }
    }
    if (!keys.empty()) put(keys, parents);
}

// Asks for a batch and gives back what it leased.
void Replay::read(std::span<const std::string_view> keys) {
    body_.clear();
    wire::Writer writer(body_);
    wire::encode_keys_request(prefix(client_, false), {}, keys, writer);
    const wire::Buffer answer = ask(wire::Verb::kLookup, body_);
    const auto found = wire::Places<wire::LookupRecord>::parse(answer);
    assert(found && found->count == keys.size());
    std::vector<std::string_view> leased;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const bool is_hit = wire::ok(found->record(i).status);
        hit_.push_back(is_hit ? 1 : 0);
        if (is_hit) leased.push_back(keys[i]);
    }
    if (leased.empty()) return;
    body_.clear();
    wire::Writer release(body_);
    wire::encode_keys_request(prefix(client_, true), {}, leased, release);
    ask(wire::Verb::kRelease, body_);
}

void Replay::put(std::span<const std::string_view> keys, std::span<const std::uint64_t> parents) {
    const std::vector<std::uint64_t> sizes(keys.size(), block_bytes_);
    body_.clear();
    wire::Writer start(body_);
    wire::encode_put_start(prefix(client_, true), {}, {}, {}, keys, sizes, parents, start);
    const wire::Buffer answer = ask(wire::Verb::kPutStart, body_);
    const auto granted = wire::Places<wire::GrantRecord>::parse(answer);
    assert(granted && granted->count == keys.size());
    std::vector<wire::PutEndItem> items;
    std::vector<wire::ReplicaResult> results;
    std::size_t place = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const wire::GrantRecord grant = granted->record(i);
        if (wire::ok(grant.status)) items.push_back({grant.put_id, grant.replica_count, 0});
        for (std::size_t j = 0; j < grant.replica_count; ++j) {
            results.push_back({granted->place(place++).replica, wire::Status::kOk, 0, 0});
        }
    }
    if (items.empty()) return;
    body_.clear();
    wire::Writer end(body_);
    wire::encode_put_end(prefix(client_, true), items, results, end);
    ask(wire::Verb::kPutEnd, body_);
}

}  // namespace mooncake::replay
