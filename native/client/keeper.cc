#include "client/keeper.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "net/discover.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/signals_blocked.h"

namespace mooncake::client {

using net::IoResult;
using net::monotonic_ms;

namespace {

constexpr std::uint64_t kControlAnswerMs = 2'000;   // then the connection is made anew
constexpr std::uint64_t kReconnectDelayMinMs = 50;  // doubles to
constexpr std::uint64_t kReconnectDelayMaxMs = 1'000;
constexpr std::uint64_t kGoodbyeMs = 200;
constexpr std::uint64_t kIdleMs = 60'000;
// Where gRPC stands in for a lane that could not be reached, the lane is looked for so often, and so long.
constexpr std::uint64_t kLaneAgainMs = 60'000;
constexpr std::uint64_t kLaneAgainWaitMs = 1'000;

// Nobody was reached who speaks the lane; one that speaks it and refuses would refuse over gRPC too.
bool is_out_of_reach(wire::Status status) {
    return status == wire::Status::kRpcFail || status == wire::Status::kDeadline ||
           status == wire::Status::kClosed || status == wire::Status::kMalformed;
}

}  // namespace

Keeper::Keeper(Driver& driver) : driver_(driver), prober_(driver.hello(wire::Role::kData)) {
    driver_.cluster().poke_keeper = [this] { poke(); };
}

Keeper::~Keeper() { stop(); }

// ---- the master and the session

bool Keeper::find_master(const net::Patience& patience, std::string& why, wire::Status& status) {
    const auto& options = driver_.options();
    if (!options.lane.empty()) {
        const auto lane = net::parse_endpoint(options.lane);
        if (!lane) {
            why = "'" + options.lane + "' is not host:port (lane)";
            status = wire::Status::kInvalidParams;
            return false;
        }
        driver_.set_master(*lane, {});
        return true;
    }
    why.clear();
    auto masters_left = options.masters.size();
    for (const auto& text : options.masters) {
        const auto master = net::parse_endpoint(text);
        if (!master) {
            why = "'" + text + "' is not host:port (master_server_addr)";
            status = wire::Status::kInvalidParams;
            return false;
        }
        const auto now = monotonic_ms();
        if (now >= patience.deadline_ms) break;
        // One that swallows packets must leave time for the others.
        const auto found =
            net::discover(*master, (patience.deadline_ms - now) / masters_left--, patience.given_up);
        if (found.found) {
            driver_.set_master(found.lane, *master);
            return true;
        }
        why += (why.empty() ? "" : "; ") + found.why;
        if (patience.is_given_up()) break;
    }
    if (options.masters.empty()) why = "no master is named";
    why = "no master answers within " + std::to_string(options.connect_timeout_ms) +
          " ms (master_server_addr): " + why;
    status = wire::Status::kRpcFail;
    return false;
}

bool Keeper::open_session(const net::Patience& patience, std::string& why, wire::Status& status) {
    const auto& options = driver_.options();
    wire::FrameHeader header;
    header.verb = wire::Verb::kOpenSession;
    wire::Buffer frame;
    wire::begin_frame(frame, header);
    wire::Writer writer(frame);
    wire::encode(wire::OpenSession{driver_.process(), options.name, options.host_id, options.tenant}, writer);
    wire::finish_frame(frame, 0);
    wire::Bytes body;
    if (!ask(frame, header, body, patience)) {
        why = why_not_connected();
        status = wire::Status::kRpcFail;
        return false;
    }
    if (!wire::ok(header.status)) {
        wire::Reader reader(body);
        why = "the master refuses a session: " + std::string(reader.text16(wire::kHelloBytesMax));
        status = header.status;
        return false;
    }
    const auto reply = wire::parse_open_session_reply(body);
    if (!reply || reply->session == 0) {
        why = "the master's answer to open_session does not parse";
        status = wire::Status::kMalformed;
        disconnect(why);
        return false;
    }
    driver_.session_opened(*reply);
    heartbeat_at_ms_ = monotonic_ms() + std::max<std::uint64_t>(reply->heartbeat_interval_ms, 10);
    const std::lock_guard lock(mutex_);
    is_connected_ = true;
    why_.clear();
    return true;
}

// Opens socket_ by the door that the settings allow. Beside a lane that swallows packets gRPC gets a time of
// its own: `patience` is then the new one.
bool Keeper::reach_master(net::Patience& patience, std::string& why, wire::Status& status) {
    const auto& options = driver_.options();
    std::string lane_why;
    if (options.control != Control::kGrpc) {
        driver_.use_lane();
        auto refusal = wire::Status::kOk;
        socket_ = driver_.connect_lane(patience, why, refusal);
        if (socket_) return true;
        why = "the master's lane does not answer: " + why;
        status = wire::Status::kRpcFail;
        const bool may_use_grpc = options.control == Control::kAuto && options.start_bridge &&
                                  options.lane.empty() && is_out_of_reach(refusal);
        if (!may_use_grpc || patience.is_given_up()) return false;
        lane_why = why;
    }
    status = wire::Status::kRpcFail;
    std::string grpc_why;
    if (driver_.use_grpc(lane_why, grpc_why)) {
        patience.deadline_ms = monotonic_ms() + options.connect_timeout_ms;
        auto refusal = wire::Status::kOk;
        socket_ = driver_.connect_lane(patience, grpc_why, refusal);
        lane_again_at_ms_ = monotonic_ms() + kLaneAgainMs;
        if (socket_) return true;
    }
    why =
        (lane_why.empty() ? "the master" : lane_why + "; and it") + " cannot be asked over gRPC: " + grpc_why;
    return false;
}

void Keeper::try_lane_again(std::uint64_t now_ms) {
    lane_again_at_ms_ = now_ms + kLaneAgainMs;
    auto socket = driver_.try_lane(patience(kLaneAgainWaitMs));
    if (!socket) return;
    driver_.use_lane();
    socket_ = std::move(socket);
    std::string why;
    auto status = wire::Status::kOk;
    if (!open_session(patience(kControlAnswerMs), why, status)) disconnect(why);
}

bool Keeper::connect(const net::Patience& given, std::string& why, wire::Status& status) {
    auto patience = given;
    if (!find_master(patience, why, status) || !reach_master(patience, why, status)) return false;
    return open_session(patience, why, status);
}

void Keeper::reconnect() {
    std::string why;
    auto status = wire::Status::kOk;
    driver_.attempt_begins();
    const auto all_its_time = patience(driver_.options().connect_timeout_ms);
    if (connect(all_its_time, why, status)) {
        reconnect_delay_ms_ = 0;
    } else {
        reconnect_delay_ms_ = std::clamp(reconnect_delay_ms_ * 2, kReconnectDelayMinMs, kReconnectDelayMaxMs);
        tried_at_ms_ = monotonic_ms();
        reconnect_at_ms_ = tried_at_ms_ + reconnect_delay_ms_;
        disconnect(why, tried_at_ms_ >= all_its_time.deadline_ms);
    }
    driver_.attempt_ended();
}

void Keeper::disconnect(const std::string& why, bool is_silent) {
    socket_.reset();
    driver_.master_lost(monotonic_ms(), is_silent);
    const std::lock_guard lock(mutex_);
    is_connected_ = false;
    why_ = why;
}

bool Keeper::ask(wire::Buffer& frame, wire::FrameHeader& header, wire::Bytes& body,
                 const net::Patience& patience) {
    const auto request_id = socket_->next_request_id();
    wire::Writer(frame).patch(offsetof(wire::FrameHeader, request_id), request_id);
    iovec piece{frame.data(), frame.size()};
    auto result = socket_->send_all({&piece, 1}, patience);
    if (result == IoResult::kDone) result = socket_->receive_frame(header, body, patience);
    if (result == IoResult::kDone && header.is_reply() && header.request_id == request_id) return true;
    disconnect(result == IoResult::kDone ? "the master's answer is to another question" : socket_->error());
    return false;
}

net::Patience Keeper::patience(std::uint64_t wait_ms) {
    return {monotonic_ms() + wait_ms, [this] { return must_stop(); }};
}

wire::Buffer Keeper::begin(wire::Verb verb, bool mutating, wire::Prefix& prefix) {
    const auto stamp = driver_.cluster().stamp(mutating);
    prefix = {stamp.session, stamp.sequence, 0, 0};
    wire::FrameHeader header;
    header.verb = verb;
    header.epoch = stamp.epoch;
    wire::Buffer frame;
    wire::begin_frame(frame, header);
    return frame;
}

void Keeper::heartbeat(std::uint64_t now_ms) {
    wire::Prefix prefix;
    auto frame = begin(wire::Verb::kHeartbeat, false, prefix);
    std::vector<wire::SegmentId> unreachable;
    std::vector<wire::PeerFailure> failures;
    driver_.cluster().locked([&](const auto& state) { state.unreachable(unreachable, failures); });
    wire::Writer writer(frame);
    wire::encode_heartbeat(prefix, unreachable, failures, writer);
    wire::finish_frame(frame, 0);
    wire::FrameHeader header;
    wire::Bytes body;
    if (!ask(frame, header, body, patience(kControlAnswerMs))) return;
    const auto interval =
        driver_.cluster().locked([](const auto& state) { return state.session().heartbeat_interval_ms; });
    heartbeat_at_ms_ = now_ms + std::max<std::uint64_t>(interval, 10);
    if (wire::ok(header.status)) return;
    std::string why;
    auto status = wire::Status::kOk;
    if (!open_session(patience(kControlAnswerMs), why, status)) disconnect(why);
}

// ---- what others left to be told

void Keeper::flush(std::uint64_t now_ms) {
    if (driver_.cluster().locked([&](const auto& state) { return state.releases_due(now_ms); })) {
        flush_releases(patience(kControlAnswerMs));
        driver_.cluster().releases_told();
    }
    if (socket_ && driver_.cluster().locked([](const auto& state) { return state.has_revokes(); }))
        flush_revokes();
    if (socket_ &&
        driver_.cluster().locked([&](auto& state) { return now_ms >= state.locations().accesses_due_ms(); }))
        flush_accesses();
}

// Not repeated when lost: what is read again is looked up again within a moment.
void Keeper::flush_accesses() {
    const auto taken =
        driver_.cluster().locked([](auto& state) { return state.locations().take_accesses(); });
    std::vector<std::string_view> keys;
    std::size_t offset = 0;
    for (const auto length : taken.lengths) {
        keys.push_back(std::string_view(taken.bytes).substr(offset, length));
        offset += length;
    }
    static_assert(kAccessesMax <= wire::kBatchKeysMax);
    wire::Prefix prefix;
    auto frame = begin(wire::Verb::kTouch, false, prefix);
    prefix.flags = wire::kReadBefore;
    wire::Writer writer(frame);
    wire::encode_keys_request(prefix, {}, keys, writer, taken.counts);
    wire::finish_frame(frame, 0);
    wire::FrameHeader header;
    wire::Bytes body;
    if (ask(frame, header, body, patience(kControlAnswerMs)) && wire::ok(header.status)) return;
    driver_.cluster().locked([&](auto& state) { state.locations().lost_accesses(taken); });
}

void Keeper::flush_releases(const net::Patience& patience) {
    const auto taken = driver_.cluster().locked([](auto& state) { return state.take_releases(); });
    std::vector<std::string_view> keys;
    std::size_t offset = 0;
    for (std::size_t i = 0; i < taken.lengths.size(); ++i) {
        keys.push_back(std::string_view(taken.bytes).substr(offset, taken.lengths[i]));
        offset += taken.lengths[i];
        if (keys.size() < wire::kBatchKeysMax && i + 1 < taken.lengths.size()) continue;
        wire::Prefix prefix;
        auto frame = begin(wire::Verb::kRelease, false, prefix);
        wire::Writer writer(frame);
        wire::encode_keys_request(prefix, {}, keys, writer);
        wire::finish_frame(frame, 0);
        wire::FrameHeader header;
        wire::Bytes body;
        // Not repeated when lost: the leases run out by themselves.
        if (!ask(frame, header, body, patience)) return;
        keys.clear();
    }
}

void Keeper::flush_revokes() {
    const auto taken = driver_.cluster().locked([](auto& state) { return state.take_revokes(); });
    for (std::size_t first = 0; first < taken.size(); first += wire::kBatchKeysMax) {
        const auto count = std::min(wire::kBatchKeysMax, taken.size() - first);
        wire::Prefix prefix;
        auto frame = begin(wire::Verb::kPutRevoke, true, prefix);
        wire::Writer writer(frame);
        wire::encode_put_revoke(prefix, std::span(taken).subspan(first, count), writer);
        wire::finish_frame(frame, 0);
        wire::FrameHeader header;
        wire::Bytes body;
        if (ask(frame, header, body, patience(kControlAnswerMs))) continue;
        // Again on the next connection; revoking twice is harmless.
        driver_.cluster().revoke(std::span(taken).subspan(first));
        return;
    }
}

// ---- peers

void Keeper::start_probes(std::uint64_t now_ms) {
    std::vector<std::pair<PeerId, std::string>> due;
    driver_.cluster().locked([&](auto& state) {
        for (const auto peer : state.probes_due(now_ms)) due.emplace_back(peer, state.peer_endpoint(peer));
    });
    for (const auto& [peer, endpoint] : due) {
        prober_.probe(endpoint, [this, peer = peer](const net::ProbeAnswer& answer) {
            probe_ended(peer, answer.result);
        });
    }
}

// On the prober's thread.
void Keeper::probe_ended(PeerId peer, net::ProbeResult result) {
    if (result == net::ProbeResult::kWelcomed) {
        driver_.cluster().locked([&](auto& state) { state.probe_answered(peer); });
        return;
    }
    const auto failure = result == net::ProbeResult::kFailed ? Failure::kDial : Failure::kRefused;
    driver_.cluster().locked([&](auto& state) { state.probe_failed(peer, failure, monotonic_ms()); });
    poke();
}

// Nodes that are gone for good are forgotten when the master does not know their segments any more.
void Keeper::check_segments(std::uint64_t now_ms) {
    const auto ids = driver_.cluster().locked([&](auto& state) { return state.segments_to_check(now_ms); });
    for (std::size_t first = 0; first < ids.size() && socket_; first += wire::kBatchKeysMax) {
        const auto asked = std::span(ids).subspan(first, std::min(ids.size() - first, wire::kBatchKeysMax));
        wire::Prefix prefix;
        auto frame = begin(wire::Verb::kSegments, false, prefix);
        wire::Writer writer(frame);
        wire::encode_segment_ids(prefix, asked, writer);
        wire::finish_frame(frame, 0);
        wire::FrameHeader header;
        wire::Bytes body;
        if (!ask(frame, header, body, patience(kControlAnswerMs)) || !wire::ok(header.status)) break;
        if (const auto infos = wire::parse_segments_reply(body)) driver_.cluster().learn(asked, *infos);
    }
    driver_.close_old(now_ms);
}

// ---- the thread

void Keeper::start() {
    const net::SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "mc-keeper");
}

void Keeper::poke() {
    {
        const std::lock_guard lock(mutex_);
        is_poked_ = true;
    }
    poked_.notify_one();
}

bool Keeper::must_stop() {
    const std::lock_guard lock(mutex_);
    return is_stopping_;
}

bool Keeper::is_connected() {
    const std::lock_guard lock(mutex_);
    return is_connected_;
}

std::string Keeper::why_not_connected() {
    const std::lock_guard lock(mutex_);
    return why_;
}

void Keeper::run() {
    while (true) {
        const auto now = monotonic_ms();
        const auto due = next_due(now);
        {
            std::unique_lock lock(mutex_);
            poked_.wait_for(lock, std::chrono::milliseconds(due > now ? due - now : 0),
                            [this] { return is_poked_ || is_stopping_; });
            is_poked_ = false;
            if (is_stopping_) return;
        }
        round(monotonic_ms());
    }
}

std::uint64_t Keeper::next_due(std::uint64_t now_ms) {
    auto due = std::min(now_ms + kIdleMs, socket_ ? heartbeat_at_ms_ : reconnect_at_ms_);
    driver_.cluster().locked([&](const auto& state) {
        if (socket_) due = std::min(due, state.releases_due_ms());
        if (socket_ && state.has_revokes()) due = now_ms;
        if (socket_) due = std::min(due, state.locations().accesses_due_ms());
        if (socket_) due = std::min(due, state.next_check_ms());
        due = std::min(due, state.next_probe_ms());
    });
    return due;
}

void Keeper::round(std::uint64_t now_ms) {
    const bool is_session_wanted = driver_.take_session_wanted();
    if (socket_ && is_session_wanted) {
        std::string why;
        auto status = wire::Status::kOk;
        if (!open_session(patience(kControlAnswerMs), why, status)) disconnect(why);
    } else if (socket_ && !socket_->is_idle_healthy()) {
        disconnect("the master closed the connection");
    }
    // A call that lost the master pokes, and the delay between attempts stays; one that waits for an attempt
    // does not wait for a long delay.
    if (driver_.take_attempt_wanted()) {
        reconnect_at_ms_ = std::min(reconnect_at_ms_, tried_at_ms_ + kReconnectDelayMinMs);
    }
    if (!socket_ && now_ms >= reconnect_at_ms_) reconnect();
    if (socket_ && now_ms >= heartbeat_at_ms_) heartbeat(now_ms);
    if (socket_ && now_ms >= lane_again_at_ms_ && driver_.options().control == Control::kAuto &&
        driver_.is_over_grpc())
        try_lane_again(now_ms);
    if (socket_) flush(now_ms);
    start_probes(now_ms);
    if (socket_ &&
        driver_.cluster().locked([&](const auto& state) { return now_ms >= state.next_check_ms(); }))
        check_segments(now_ms);
}

void Keeper::stop() {
    {
        const std::lock_guard lock(mutex_);
        if (is_stopping_) return;
        is_stopping_ = true;
    }
    poked_.notify_one();
    if (thread_.joinable()) thread_.join();
    prober_.stop();
    if (!socket_) return;
    const net::Patience patience(monotonic_ms() + kGoodbyeMs);
    flush_releases(patience);  // else the leases of what was read last run on without a reader
    if (!socket_) return;
    wire::Prefix prefix;
    auto frame = begin(wire::Verb::kCloseSession, true, prefix);
    wire::Writer writer(frame);
    wire::encode_prefix(prefix, {}, writer);
    wire::finish_frame(frame, 0);
    wire::FrameHeader header;
    wire::Bytes body;
    ask(frame, header, body, patience);
    disconnect("closed");
}

}  // namespace mooncake::client
