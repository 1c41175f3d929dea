#include "node/control_state.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

#include "net/random.h"
#include "wire/status.h"

namespace mooncake::node {

namespace {

using wire::Status;
using wire::Verb;

// Ids retired under one hold of the directory lock.
constexpr std::size_t kIdsALock = 1'000;
// Whatever a command says, a copy's thread is free again after this long.
constexpr std::uint64_t kCopyTimeoutMaxMs = 600'000;
// A node whose last answer was older than a heartbeat and this much when it lost its master may have missed
// what ended meanwhile. It keeps back from a new master for hold_back_ms: nodes that heard it tell that
// first.
constexpr std::uint64_t kOutOfTouchMs = 100;

std::string text_of(wire::Bytes body) {
    wire::Reader reader(body);
    return std::string(reader.text16(wire::kHelloBytesMax));
}

// Hands what the connection says to the state, as long as there is one.
class ControlHandler final : public net::ConnectionHandler {
  public:
    using Frame = std::function<void(const wire::FrameHeader&, wire::Bytes)>;
    using Close = std::function<void(std::string_view)>;
    ControlHandler(Frame frame, Close close) : frame_(std::move(frame)), close_(std::move(close)) {}
    void on_frame(net::Connection&, const wire::FrameHeader& header, wire::Bytes body) override {
        frame_(header, body);
    }
    void on_close(net::Connection&, std::string_view reason) override { close_(reason); }

  private:
    Frame frame_;
    Close close_;
};

}  // namespace

Control::State::State(net::EventLoop& loop, std::shared_ptr<Holdings> holdings, ControlOptions options,
                      Dial dial, std::function<void(const wire::Uuid&)> incarnation_changed, Fetch fetch)
    : loop_(loop),
      holdings_(std::move(holdings)),
      options_(std::move(options)),
      dial_(std::move(dial)),
      incarnation_changed_(std::move(incarnation_changed)),
      fetch_(std::move(fetch)),
      retry_ms_(options_.retry_min_ms) {
    new_incarnation();
}

// ---- other threads

void Control::State::start() {
    loop_.post([self = shared_from_this()] { self->attempt(); });
}

void Control::State::leave(std::uint64_t handover_ms) {
    loop_.post([self = shared_from_this(), handover_ms] {
        if (self->phase_ == Phase::kMounted && handover_ms > 0) {
            self->drain_until_ms_ = net::monotonic_ms() + handover_ms;
            self->drain();
        } else if (self->phase_ == Phase::kMounted && self->pending_.request_id == 0) {
            self->unmount();
        } else if (self->phase_ == Phase::kMounted) {
            self->phase_ = Phase::kLeaving;  // after the answer that is under way
        } else {
            self->left();
        }
    });
}

bool Control::State::wait_left(std::uint64_t timeout_ms) {
    std::unique_lock lock(status_mutex_);
    return status_changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return left_; });
}

bool Control::State::wait_mounted(std::uint64_t timeout_ms) {
    std::unique_lock lock(status_mutex_);
    status_changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                             [&] { return status_.mounted || left_; });
    return status_.mounted;
}

ControlStatus Control::State::status() {
    const std::lock_guard lock(status_mutex_);
    return status_;
}

void Control::State::ranges_freed() {
    if (freed_posted_.exchange(true)) return;
    loop_.post([self = shared_from_this()] {
        self->loop_.call_after(self->options_.freed_delay_ms, [self] {
            self->freed_posted_ = false;
            if (self->phase_ == Phase::kMounted) self->report();
        });
    });
}

// ---- getting and losing a connection

void Control::State::attempt() {
    if (phase_ != Phase::kApart) return;
    phase_ = Phase::kDialing;
    const std::uint64_t attempt = ++attempt_;
    const auto self = shared_from_this();
    auto handler = std::make_unique<ControlHandler>(
        [self, attempt](const auto& header, wire::Bytes body) { self->on_frame(attempt, header, body); },
        [self, attempt](std::string_view reason) { self->on_close(attempt, reason); });
    dial_(std::move(handler),
          [self, attempt](std::shared_ptr<net::Connection> connection, const std::string& reason) {
              self->connected(attempt, std::move(connection), reason);
          });
}

void Control::State::connected(std::uint64_t attempt, std::shared_ptr<net::Connection> connection,
                               const std::string& why) {
    if (attempt != attempt_ || phase_ != Phase::kDialing) {
        if (connection) connection->close("given up");
        return;
    }
    if (!connection) return fail(why);
    connection_ = std::move(connection);
    change_status([](ControlStatus& status) { status.connected = true; });
    say_hello();
}

void Control::State::on_close(std::uint64_t attempt, std::string_view reason) {
    if (attempt == attempt_ && connection_)
        fail("the connection to the master ended: " + std::string(reason));
}

// Whatever went wrong: end this attempt, try again a little later.
void Control::State::fail(const std::string& why) {
    if (phase_ == Phase::kLeft) return;
    const bool leaving = phase_ == Phase::kLeaving || drain_until_ms_ > 0;
    drop_connection(why);
    if (leaving) return left();
    retry_after(retry_ms_);
    retry_ms_ = std::min(retry_ms_ * 2, options_.retry_max_ms);
}

void Control::State::drop_connection(const std::string& why) {
    ++attempt_;
    if (phase_ == Phase::kMounted) {
        const std::uint64_t silent_ms = net::boottime_ms() - holdings_->heard_ms();
        is_out_of_touch_ = silent_ms > session_.heartbeat_interval_ms + kOutOfTouchMs;
    }
    phase_ = Phase::kApart;
    pending_ = {};
    report_due_ = false;
    drain_due_ = false;
    listing_ = {};
    loop_.cancel(request_timer_);
    loop_.cancel(heartbeat_timer_);
    if (connection_) std::exchange(connection_, nullptr)->close(why, true);
    change_status([&](ControlStatus& status) {
        status.connected = false;
        status.mounted = false;
        if (!why.empty()) status.last_error = why;
    });
}

void Control::State::retry_after(std::uint64_t delay_ms) {
    loop_.call_after(delay_ms, [self = shared_from_this(), attempt = attempt_] {
        if (attempt == self->attempt_) self->attempt();
    });
}

// ---- asking

void Control::State::ask(Verb verb, const std::function<void(wire::Writer&)>& body) {
    assert(connection_ && pending_.request_id == 0);
    pending_ = {verb, ++last_request_id_, net::boottime_ms(), 0};
    wire::FrameHeader header;
    header.verb = verb;
    header.request_id = pending_.request_id;
    header.epoch = epoch_;
    wire::Buffer buffer;
    const std::size_t start = wire::begin_frame(buffer, header);
    wire::Writer writer(buffer);
    body(writer);
    wire::finish_frame(buffer, start);
    connection_->send(std::move(buffer));
    loop_.cancel(request_timer_);
    request_timer_ = loop_.call_after(
        options_.request_timeout_ms, [self = shared_from_this(), verb, id = pending_.request_id] {
            if (self->pending_.request_id != id) return;
            self->fail(std::string("the master did not answer ") + wire::verb_name(verb) + " within " +
                       std::to_string(self->options_.request_timeout_ms) + " ms");
        });
}

wire::Prefix Control::State::prefix(bool mutating) {
    wire::Prefix prefix;
    prefix.session = session_.session;
    if (mutating) prefix.sequence = ++last_sequence_;
    return prefix;
}

void Control::State::say_hello() {
    phase_ = Phase::kHello;
    wire::Hello hello;
    hello.role = wire::Role::kNode;
    hello.process = incarnation_;
    hello.software = options_.software;
    ask(Verb::kHello, [&](wire::Writer& writer) { wire::encode(hello, writer); });
}

void Control::State::open_session() {
    phase_ = Phase::kOpening;
    wire::OpenSession message;
    message.process = incarnation_;
    message.name = options_.name;
    message.host_id = options_.host_id;
    ask(Verb::kOpenSession, [&](wire::Writer& writer) { wire::encode(message, writer); });
}

void Control::State::mount() {
    phase_ = Phase::kMounting;
    std::vector<wire::SegmentDescription> segments;
    for (std::size_t i = 0; i < options_.segments.size(); ++i) {
        wire::SegmentDescription segment;
        segment.capacity_bytes = holdings_->segment(i).bytes();
        segment.incarnation = incarnation_;
        segment.name = options_.segments[i].name;
        segment.host_id = options_.host_id;
        for (const auto& endpoint : options_.segments[i].endpoints) segment.endpoints.push_back(endpoint);
        segments.push_back(std::move(segment));
    }
    const wire::MountOrigin origin{epoch_, master_,
                                   inventory_due_ ? std::uint32_t{wire::kMountWithInventory} : 0};
    ask(Verb::kMount,
        [&](wire::Writer& writer) { wire::encode_mount(prefix(true), origin, segments, writer); });
}

void Control::State::heartbeat() {
    heartbeat_timer_ = loop_.call_after(std::max<std::uint64_t>(session_.heartbeat_interval_ms, 10),
                                        [self = shared_from_this(), attempt = attempt_] {
                                            if (attempt != self->attempt_) return;
                                            self->heartbeat();
                                            if (self->phase_ == Phase::kMounted) self->report();
                                        });
}

void Control::State::drain() {
    if (pending_.request_id != 0) {
        drain_due_ = true;
        return;
    }
    drain_due_ = false;
    const std::vector<wire::SegmentId> ids = mounted_ids();
    ask(Verb::kDrain, [&](wire::Writer& writer) { wire::encode_segment_ids(prefix(false), ids, writer); });
}

std::vector<wire::SegmentId> Control::State::mounted_ids() {
    std::vector<wire::SegmentId> ids;
    holdings_->with_directory([&](Directory& directory) {
        for (std::size_t i = 0; i < holdings_->segment_count(); ++i) {
            ids.push_back(directory.segment_id(static_cast<SegmentIndex>(i)));
        }
    });
    return ids;
}

// From the moment the master takes the segments out of the pool it retires nothing here any more: so nothing
// may be read that is not being read already.
void Control::State::unmount() {
    phase_ = Phase::kLeaving;
    const std::vector<wire::SegmentId> ids = mounted_ids();
    give_up_all();
    ask(Verb::kUnmount, [&](wire::Writer& writer) { wire::encode_segment_ids(prefix(true), ids, writer); });
}

void Control::State::close_session() {
    phase_ = Phase::kLeaving;
    ask(Verb::kCloseSession, [&](wire::Writer& writer) { wire::encode_prefix(prefix(true), {}, writer); });
}

// ---- hearing

void Control::State::on_frame(std::uint64_t attempt, const wire::FrameHeader& header, wire::Bytes body) {
    if (attempt != attempt_ || !connection_) return;
    if (header.is_reply()) return on_answer(header, body);
    if (header.verb == Verb::kRetire) return on_retire(header, body);
    if (header.verb == Verb::kCopy) return on_copy(header, body);
    if (header.verb == Verb::kPing) {
        wire::Buffer buffer;
        wire::begin_frame(buffer, wire::reply_header(header, Status::kOk, epoch_));
        return connection_->send(std::move(buffer));
    }
    connection_->send(wire::refusal(header, Status::kNotSupported,
                                    std::string(wire::verb_name(header.verb)) + " is not for a node",
                                    epoch_));
}

void Control::State::on_answer(const wire::FrameHeader& header, wire::Bytes body) {
    if (header.request_id != pending_.request_id || header.verb != pending_.verb) {
        return fail("the master answered a question that was not asked");
    }
    const Pending asked = pending_;
    const bool leaving = phase_ == Phase::kLeaving;
    if (header.status == Status::kSessionUnknown && !leaving) {
        return start_over("the master has ended this node's session");
    }
    if (!wire::ok(header.status) && header.verb == Verb::kDrain) {
        pending_ = {};
        return unmount();  // without
    }
    if (!wire::ok(header.status)) {
        if (header.verb == Verb::kMount && header.status == Status::kUnreachable) {
            change_status([](ControlStatus& status) { status.unreachable = true; });
        }
        return fail(std::string("the master refused ") + wire::verb_name(header.verb) + ": " +
                    wire::status_name(header.status) + " " + text_of(body));
    }
    if (header.verb != Verb::kReport) pending_ = {};
    switch (header.verb) {
        case Verb::kHello:
            if (!wire::parse_welcome(body)) return fail("the master's welcome does not parse");
            return open_session();
        case Verb::kOpenSession:
            return on_opened(body);
        case Verb::kMount:
            pending_ = asked;
            return on_mounted(header, body);
        case Verb::kReport:
            if (header.epoch > epoch_) adopt(header.epoch);
            return on_reported(body);
        case Verb::kInventory:
            return on_inventory_taken();
        case Verb::kHoldings:
            return on_holdings_taken();
        case Verb::kDrain:
            return on_drained(body);
        case Verb::kTombstones:
            return on_tombstones(body);
        case Verb::kUnmount:
            return close_session();
        default:
            return left();
    }
}

void Control::State::on_opened(wire::Bytes body) {
    const auto reply = wire::parse_open_session_reply(body);
    if (!reply || reply->session == 0) return fail("the answer to open_session does not parse");
    std::string why;
    if (!may_follow(*reply, why)) return fail(why);
    session_ = *reply;
    if (mounted_session_ != 0 && reply->master != master_) {
        // Another master granted what is held: this one is told of it.
        // A number above ours by one is the same memory's, kept in a file: it needs no other node's.
        if (is_out_of_touch_ && reply->epoch != epoch_ + 1 && holds_back()) return;
        inventory_due_ = true;
        last_command_id_ = 0;
    } else if (mounted_session_ != 0 && reply->session != mounted_session_) {
        return start_over("the master has no session of this node any more");
    }
    mount();
}

// True: not yet, and the next attempt is due when the time is over.
bool Control::State::holds_back() {
    const std::uint64_t now_ms = net::boottime_ms();
    if (hold_back_until_ms_ == 0) hold_back_until_ms_ = now_ms + options_.hold_back_ms;
    if (now_ms >= hold_back_until_ms_) return false;
    drop_connection("a new master; nodes that heard the last one to its end go first");
    retry_after(hold_back_until_ms_ - now_ms);
    return true;
}

// A lower or equal epoch under another uuid: two masters may both believe that they rule. Follow the other
// one only when the one followed so far has been silent for so long that it has expired this node.
bool Control::State::may_follow(const wire::OpenSessionReply& reply, std::string& why) const {
    if (reply.epoch > epoch_ || reply.master == master_ || holdings_->heard_ms() == 0) return true;
    if (holdings_->is_fenced()) return true;
    why = "this master reigns in epoch " + std::to_string(reply.epoch) + ", but another one of epoch " +
          std::to_string(epoch_) + " was heard " +
          std::to_string(net::boottime_ms() - holdings_->heard_ms()) +
          " ms ago; it is followed only after client_ttl without that one";
    return false;
}

void Control::State::on_mounted(const wire::FrameHeader& header, wire::Bytes body) {
    const Pending asked = std::exchange(pending_, {});
    const auto answers = wire::parse_mount_reply(body);
    if (!answers || answers->size() != options_.segments.size())
        return fail("the answer to mount does not parse");
    for (std::size_t i = 0; i < answers->size(); ++i) {
        if (wire::ok((*answers)[i].status)) continue;
        if (inventory_due_ && (*answers)[i].status == Status::kStaleEpoch) {
            return start_over("the master takes in nothing of an earlier reign any more");
        }
        return fail("the master refused to mount segment " + options_.segments[i].name + ": " +
                    wire::status_name((*answers)[i].status));
    }
    if (header.epoch < epoch_ || (header.epoch == epoch_ && session_.master != master_)) {
        return fail("the master still reigns in epoch " + std::to_string(header.epoch) +
                    ", which is not above the epoch " + std::to_string(epoch_) + " of another one");
    }
    is_out_of_touch_ = false;
    hold_back_until_ms_ = 0;
    if (session_.master != master_) {
        tombstones_generation_ = 0;
        tombstones_due_ = !tombstones_.empty();
    }
    master_ = session_.master;
    adopt(std::max(header.epoch, session_.epoch));
    holdings_->with_directory([&](Directory& directory) {
        for (std::size_t i = 0; i < answers->size(); ++i) {
            directory.attach(static_cast<SegmentIndex>(i), (*answers)[i].segment);
        }
    });
    holdings_->heard_master(asked.asked_ms, session_.client_ttl_ms);
    mounted_session_ = session_.session;
    phase_ = Phase::kMounted;
    retry_ms_ = options_.retry_min_ms;
    change_status([&](ControlStatus& status) {
        status.mounted = true;
        status.unreachable = false;
        status.follow(master_);
        status.client_ttl_ms = session_.client_ttl_ms;
        status.session = session_.session;
        status.segments.clear();
        for (const auto& answer : *answers) status.segments.push_back(answer.segment);
        ++status.mounts_total;
    });
    heartbeat();
    for (const auto& [target, status] : std::exchange(copied_, {})) copied(target, status);
    if (inventory_due_) inventory_ = {};
    report();
}

void Control::State::go_on() {
    if (phase_ == Phase::kLeaving) return unmount();
    if (drain_due_) return drain();
    if (report_due_) return report();
    if (tombstones_due_) return ask_tombstones();  // before the inventory: they judge it
    if (inventory_due_) return next_inventory_chunk();
    if (listing_.comparison != 0) next_holdings_chunk();
}

void Control::State::on_drained(wire::Bytes body) {
    const auto reply = wire::parse_drain_reply(body);
    if (!reply) return fail("the answer to a drain does not parse");
    change_status([&](ControlStatus& status) { status.handed_over_total = reply->moved_count; });
    if (reply->left_count == 0 || net::monotonic_ms() >= drain_until_ms_) return unmount();
    loop_.call_after(options_.drain_period_ms, [self = shared_from_this(), attempt = attempt_] {
        if (attempt == self->attempt_ && self->phase_ == Phase::kMounted) self->drain();
    });
    go_on();
}

// True: the command is of an older reign.
bool Control::State::refuse_outdated(const wire::FrameHeader& header) {
    if (header.epoch >= epoch_) return false;
    connection_->send(wire::refusal(header, Status::kStaleEpoch,
                                    "this node follows epoch " + std::to_string(epoch_), epoch_));
    return true;
}

void Control::State::on_copy(const wire::FrameHeader& header, wire::Bytes body) {
    if (refuse_outdated(header)) return;
    const auto order = wire::parse_copy(body);
    if (!order || header.request_id != order->target)
        return fail("a copy command of the master does not parse");
    if (header.epoch > epoch_ && phase_ == Phase::kMounted) adopt(header.epoch);
    // Told again after a broken connection: one answer does for both.
    if (!copying_.insert(order->target).second) return;
    change_status([](ControlStatus& status) { ++status.copies_ordered_total; });
    CopyTask task;
    task.target = order->target;
    task.segment = order->segment;
    task.source = order->source;
    task.digest = order->digest;
    task.put_id = order->put_id;
    task.size = order->size;
    task.epoch = header.epoch;
    task.deadline_ms = net::monotonic_ms() + std::min(order->timeout_ms, kCopyTimeoutMaxMs);
    task.endpoints.assign(order->endpoints.begin(), order->endpoints.end());
    fetch_(std::move(task), [state = weak_from_this(), target = order->target](Status status) {
        const auto self = state.lock();
        if (!self) return;
        self->loop_.post([self, target, status] { self->copied(target, status); });
    });
}

// Without a master that listens the answer is kept for the next mount: it may have asked again already.
void Control::State::copied(wire::ReplicaId target, Status status) {
    if (!connection_ || (phase_ != Phase::kMounted && phase_ != Phase::kLeaving)) {
        copied_[target] = status;
        return;
    }
    copying_.erase(target);
    wire::FrameHeader header;
    header.verb = Verb::kCopy;
    header.request_id = target;
    wire::Buffer buffer;
    const std::size_t start = wire::begin_frame(buffer, wire::reply_header(header, Status::kOk, epoch_));
    wire::Writer writer(buffer);
    wire::encode(wire::CopyReply{target, status}, writer);
    wire::finish_frame(buffer, start);
    connection_->send(std::move(buffer));
}

void Control::State::on_retire(const wire::FrameHeader& header, wire::Bytes body) {
    if (refuse_outdated(header)) return;
    const auto retire = wire::parse_retire(body);
    if (!retire) return fail("a retire of the master does not parse");
    if (header.epoch > epoch_ && phase_ == Phase::kMounted) adopt(header.epoch);
    std::vector<wire::ReplicaId> freed;
    const std::span<const wire::ReplicaId> ids = retire->replicas;
    for (std::size_t from = 0; from < ids.size(); from += kIdsALock) {
        holdings_->with_directory([&](Directory& directory) {
            directory.retire(ids.subspan(from, std::min(kIdsALock, ids.size() - from)), freed);
        });
    }
    last_command_id_ = retire->command_id;
    change_status([&](ControlStatus& status) {
        status.retired_total += ids.size();
        status.last_command_id = last_command_id_;
    });
    wire::Buffer buffer;
    const std::size_t start = wire::begin_frame(buffer, wire::reply_header(header, Status::kOk, epoch_));
    wire::Writer writer(buffer);
    wire::encode_retire_reply(retire->command_id, freed, writer);
    wire::finish_frame(buffer, start);
    connection_->send(std::move(buffer));
}

void Control::State::adopt(std::uint64_t epoch) {
    epoch_ = std::max(epoch_, epoch);
    holdings_->with_directory([&](Directory& directory) { directory.adopt(epoch_); });
    change_status([&](ControlStatus& status) { status.epoch = epoch_; });
}

// ---- ends

// The master counts nothing of what this node holds: give it all up (readers keep their ranges until they
// are done) and come back as a new incarnation.
void Control::State::start_over(const std::string& why) {
    if (drain_until_ms_ > 0) return fail(why);  // it was about to leave anyway
    drop_connection(why);
    give_up_all();
    new_incarnation();
    session_ = {};
    last_sequence_ = 0;
    last_command_id_ = 0;
    settled_id_ = 0;
    mounted_session_ = 0;
    for (const auto& [target, status] : std::exchange(copied_, {})) copying_.erase(target);
    inventory_due_ = false;
    inventory_ = {};
    change_status([](ControlStatus& status) {
        ++status.expulsions_total;
        status.session = 0;
        status.segments.clear();
    });
    retry_after(options_.retry_min_ms);
}

// Nothing held is served any more; readers keep their ranges until they are done.
void Control::State::give_up_all() {
    const auto segments = static_cast<SegmentIndex>(holdings_->segment_count());
    holdings_->with_directory([&](Directory& directory) {
        for (SegmentIndex i = 0; i < segments; ++i) directory.expel(i);
        directory.acknowledge_freed(directory.pending_freed_count());
    });
    while (!holdings_->with_directory([](Directory& directory) { return directory.sweep(); })) {
    }
}

void Control::State::new_incarnation() {
    incarnation_ = net::random_uuid();
    incarnation_changed_(incarnation_);
    change_status([&](ControlStatus& status) { status.incarnation = incarnation_; });
}

void Control::State::left() {
    drop_connection("");
    phase_ = Phase::kLeft;
    {
        const std::lock_guard lock(status_mutex_);
        left_ = true;
    }
    status_changed_.notify_all();
}

}  // namespace mooncake::node
