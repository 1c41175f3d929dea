#include "client/call.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "net/event_loop.h"

namespace mooncake::client {

using net::IoResult;
using net::monotonic_ms;

namespace {

// While a transfer waits for a connection that another call holds, the others go on meanwhile.
constexpr std::uint64_t kQueuedWaitMs = 2;

// ClientSocket waits in one system call, of kWakeMs, only while the deadline is farther off than that.
constexpr std::uint64_t kBlockingMarginMs = 2;

bool is_empty(const Actions& actions) {
    return !actions.lane && !actions.open_session && actions.reads.empty() && actions.writes.empty();
}

// A node, that is; the master's lane has a deadline of its own.
bool is_stalled(const Transfer& transfer, std::uint64_t now_ms) {
    const bool is_on_its_way =
        transfer.state == Transfer::State::kSending || transfer.state == Transfer::State::kReceiving;
    return is_on_its_way && transfer.kind != Transfer::Kind::kLane &&
           now_ms >= transfer.progress_ms + kStallMs;
}

Failure failure_of(IoResult result) {
    return result == IoResult::kMalformed ? Failure::kMalformed : Failure::kBroken;
}

}  // namespace

void Call::run(const std::function<void(std::uint64_t, Actions&)>& begin) {
    auto now = monotonic_ms();
    looked_up_ms_ = now;
    Actions actions;
    begin(now, actions);
    while (!operation_.done()) {
        while (!is_empty(actions) && !operation_.done()) {
            Actions current = std::exchange(actions, {});
            carry_out(now, current);
            start_queued(now, actions);
        }
        if (operation_.done()) break;
        wait(now, actions);
        now = monotonic_ms();
        look_up(now, actions);
        start_queued(now, actions);
    }
    report_silent(now);
    transfers_.clear();
}

// Makes transfers of the actions; start_queued gives them connections.
void Call::carry_out(std::uint64_t now_ms, Actions& actions) {
    if (actions.open_session) {
        waits_for_session_ = true;
        session_generation_ = driver_.session_generation();
        driver_.want_session();
    }
    if (actions.lane) {
        transfers_.push_back(std::make_unique<Transfer>(Transfer::Kind::kLane, Ticket{0}, driver_.lane_pool(),
                                                        std::uint64_t{0}, now_ms + kLaneAnswerMs));
    }
    for (const auto ticket : actions.reads) {
        const auto& read = operation_.read(ticket);
        auto pool = views_ != nullptr ? driver_.view_pool(read.peer) : driver_.peer_pool(read.peer);
        transfers_.push_back(std::make_unique<ReadTransfer>(ticket, std::move(pool), read, targets_, views_));
    }
    for (const auto ticket : actions.writes) {
        const auto& write = operation_.write(ticket);
        transfers_.push_back(
            std::make_unique<WriteTransfer>(ticket, driver_.peer_pool(write.peer), write, values_));
    }
}

void Call::start_queued(std::uint64_t now_ms, Actions& actions) {
    for (std::size_t i = 0; i < transfers_.size() && !operation_.done(); ++i) {
        auto& transfer = *transfers_[i];
        if (transfer.state == Transfer::State::kQueued) try_start(transfer, now_ms, actions);
    }
    std::erase_if(transfers_, [](const auto& transfer) { return transfer->state == Transfer::State::kOver; });
}

wire::Buffer& Call::frame_of(const Transfer& transfer) {
    switch (transfer.kind) {
        case Transfer::Kind::kRead:
            return operation_.read(transfer.ticket).frame;
        case Transfer::Kind::kWrite:
            return operation_.write(transfer.ticket).frame;
        default:
            return operation_.lane_frame();
    }
}

bool Call::try_start(Transfer& transfer, std::uint64_t now_ms, Actions& actions) {
    const bool is_lane = transfer.kind == Transfer::Kind::kLane;
    bool fresh = false;
    if (transfer.kind == Transfer::Kind::kRead) fresh = operation_.read(transfer.ticket).fresh_connection;
    if (transfer.kind == Transfer::Kind::kWrite) fresh = operation_.write(transfer.ticket).fresh_connection;
    std::unique_ptr<net::ClientSocket> socket;
    const auto taken = transfer.pool().take(fresh, transfer.bytes(), socket);
    if (taken == net::ConnectionPool::Taken::kFull) return false;
    if (socket) {
        transfer.begin(std::move(socket), frame_of(transfer));
    } else {
        std::string why;
        const auto deadline_ms = std::min(transfer.deadline_ms, operation_.deadline_ms());
        auto dial = is_lane ? dial_master(now_ms, deadline_ms, why)
                            : driver_.dial_peer(transfer.peer, deadline_ms, why);
        const bool has_address = dial != nullptr;
        transfer.begin_dial(std::move(dial));
        if (!has_address) {
            fail(transfer, Failure::kRefused, why, now_ms, actions);
            return true;
        }
        set_fresh(transfer);
    }
    advance(transfer, now_ms, actions);
    return true;
}

// nullptr: the keeper waits for a master that is silent, and no call finds out earlier than it.
std::unique_ptr<net::ClientDial> Call::dial_master(std::uint64_t now_ms, std::uint64_t deadline_ms,
                                                   std::string& why) {
    if (driver_.is_master_silent() && driver_.master_given_up_ms(now_ms) != 0) {
        why = "it does not answer";
        return nullptr;
    }
    return driver_.dial_lane(deadline_ms);
}

void Call::set_fresh(const Transfer& transfer) {
    if (transfer.kind == Transfer::Kind::kRead) operation_.read(transfer.ticket).fresh_connection = true;
    if (transfer.kind == Transfer::Kind::kWrite) operation_.write(transfer.ticket).fresh_connection = true;
}

void Call::advance(Transfer& transfer, std::uint64_t now_ms, Actions& actions) {
    if (transfer.state == Transfer::State::kDialling) {
        advance_dial(transfer, now_ms, actions);
        if (transfer.state != Transfer::State::kSending) return;
    }
    settle(transfer, transfer.advance(), now_ms, actions);
}

void Call::advance_dial(Transfer& transfer, std::uint64_t now_ms, Actions& actions) {
    const auto result = transfer.advance_dial();
    if (result == IoResult::kWouldBlock) return;
    const bool is_local = transfer.dials_locally();
    if (result == IoResult::kDone) {
        auto socket = transfer.connection();
        if (is_local) driver_.dialled_locally(transfer.peer, *socket);
        transfer.begin(std::move(socket), frame_of(transfer));
        return;
    }
    const auto now = std::max(now_ms, monotonic_ms());
    const bool is_late = transfer.dial_status() == wire::Status::kDeadline;
    // A process that does not answer there does not answer elsewhere; everything else leads to TCP.
    if (is_local && !is_late) return dial_by_tcp(transfer, now, actions);
    if (is_late && now >= operation_.deadline_ms()) return;  // on_time ends the call
    // One that had not all its time proves less.
    const auto late = now >= transfer.deadline_ms ? Failure::kDeadline : Failure::kDial;
    fail(transfer, is_late ? late : Failure::kRefused, transfer.why(), now, actions);
}

void Call::settle(Transfer& transfer, IoResult result, std::uint64_t now_ms, Actions& actions) {
    if (result == IoResult::kWouldBlock) return;
    if (result == IoResult::kDone) {
        complete(transfer, now_ms, actions);
    } else {
        fail(transfer, failure_of(result), transfer.why(), now_ms, actions);
    }
}

void Call::dial_by_tcp(Transfer& transfer, std::uint64_t now_ms, Actions& actions) {
    driver_.not_dialled_locally(transfer.peer, transfer.why(), now_ms);
    std::string why;
    const auto deadline_ms = std::min(transfer.deadline_ms, operation_.deadline_ms());
    auto dial = driver_.dial_peer(transfer.peer, deadline_ms, why);
    if (!dial) return fail(transfer, Failure::kRefused, why, now_ms, actions);
    transfer.begin_dial(std::move(dial));
    advance_dial(transfer, now_ms, actions);
}

// The operation sees the answer while it still lies in the connection's buffer; what follows is only begun
// afterwards, so that one connection serves all of a call's requests to the master.
void Call::complete(Transfer& transfer, std::uint64_t now_ms, Actions& actions) {
    bool is_sound = true;
    switch (transfer.kind) {
        case Transfer::Kind::kLane:
            is_sound = operation_.on_lane_answer(transfer.reply, transfer.body, now_ms, actions);
            // Who does not know the session may be an older master than the one that the keeper speaks to:
            // kept, the connection would get the same answer over and over.
            if (actions.open_session) {
                is_sound = false;
                driver_.lane_pool()->close_idle();
            }
            break;
        case Transfer::Kind::kRead:
            operation_.on_read_done(transfer.ticket, static_cast<ReadTransfer&>(transfer).answers(), now_ms,
                                    actions);
            break;
        case Transfer::Kind::kWrite:
            is_sound =
                operation_.on_write_answer(transfer.ticket, transfer.reply, transfer.body, now_ms, actions);
            break;
    }
    if (is_sound) {
        transfer.give_back();
    } else {
        transfer.close();
    }
}

// When all have waited long enough for a master, this call waits for one more attempt of the keeper's.
void Call::master_failed(std::string& why, std::uint64_t now_ms) {
    const auto lost_ms = driver_.master_given_up_ms(now_ms);
    if (lost_ms == 0) return;
    why = "no master was reached for " + std::to_string(lost_ms / 1000) + " s: " + why;
    if (last_attempt_ == 0) last_attempt_ = driver_.is_master_silent() ? 1 : driver_.want_attempt();
}

void Call::fail(Transfer& transfer, Failure failure, const std::string& why, std::uint64_t now_ms,
                Actions& actions) {
    std::string reason = why;  // of a connection that is closed now
    const auto ticket = transfer.ticket;
    switch (transfer.kind) {
        case Transfer::Kind::kLane:
            transfer.close();
            driver_.lane_pool()->close_idle();
            driver_.poke_keeper();
            master_failed(reason, now_ms);
            operation_.on_lane_failed(failure, reason, now_ms, actions);
            break;
        case Transfer::Kind::kRead: {
            auto answers = std::move(static_cast<ReadTransfer&>(transfer).answers());
            transfer.close();
            operation_.on_read_failed(ticket, answers, failure, reason, now_ms, actions);
            break;
        }
        case Transfer::Kind::kWrite:
            transfer.close();
            operation_.on_write_failed(ticket, failure, reason, now_ms, actions);
            break;
    }
}

void Call::wait(std::uint64_t now_ms, Actions& actions) {
    polled_.clear();
    polled_transfers_.clear();
    net::ConnectionPool* full = nullptr;
    auto until = operation_.wake_ms();
    for (const auto& transfer : transfers_) {
        until = std::min(until, transfer->due_ms());
        if (transfer->state == Transfer::State::kQueued) {
            full = &transfer->pool();
        } else if (transfer->state != Transfer::State::kOver) {
            polled_.push_back({transfer->fd(), transfer->events(), 0});
            polled_transfers_.push_back(transfer.get());
        }
    }
    if (polled_.size() == 1 && full == nullptr && until > now_ms + kWakeMs + kBlockingMarginMs &&
        polled_transfers_[0]->expects_frame()) {
        auto& transfer = *polled_transfers_[0];
        const auto result = transfer.advance(now_ms + kWakeMs + kBlockingMarginMs);
        settle(transfer, result, monotonic_ms(), actions);
        return;
    }
    const auto wait_ms = std::min(until > now_ms ? until - now_ms : 0, kWakeMs);
    if (!polled_.empty()) {
        poll(full != nullptr ? std::min(wait_ms, kQueuedWaitMs) : wait_ms, actions);
    } else if (wait_ms == 0) {
        return;
    } else if (full != nullptr) {
        full->wait(wait_ms);
    } else if (waits_for_session_) {
        driver_.wait_session(session_generation_, wait_ms);
    } else {
        ::poll(nullptr, 0, static_cast<int>(wait_ms));
    }
}

void Call::poll(std::uint64_t wait_ms, Actions& actions) {
    // Interrupted by a signal: nothing is ready, and it is time to look up.
    if (::poll(polled_.data(), polled_.size(), static_cast<int>(wait_ms)) <= 0) return;
    const auto now_ms = monotonic_ms();
    for (std::size_t i = 0; i < polled_.size() && !operation_.done(); ++i) {
        if (polled_[i].revents != 0) advance(*polled_transfers_[i], now_ms, actions);
    }
}

// What only time brings: the operation's own clock, silent peers, another session, an interrupt.
void Call::look_up(std::uint64_t now_ms, Actions& actions) {
    if (operation_.done()) return;
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
        auto& transfer = *transfers_[i];
        if (transfer.state == Transfer::State::kOver) continue;
        if (now_ms >= operation_.deadline_ms()) break;
        if (now_ms >= transfer.deadline_ms) {
            const bool is_queued = transfer.state == Transfer::State::kQueued;
            fail(transfer, is_queued ? Failure::kNotSent : Failure::kDeadline,
                 is_queued ? "no connection was free in time" : "no answer in time", now_ms, actions);
        } else if (transfer.state == Transfer::State::kDialling && now_ms >= transfer.due_ms()) {
            advance(transfer, now_ms, actions);
        } else if (is_stalled(transfer, now_ms)) {
            fail(transfer, Failure::kStalled, "a node moves no bytes", now_ms, actions);
        }
    }
    if (now_ms >= operation_.wake_ms()) operation_.on_time(now_ms, actions);
    if (waits_for_session_ && driver_.session_generation() != session_generation_) {
        waits_for_session_ = false;
        operation_.on_session(actions);
    }
    if (last_attempt_ != 0 && driver_.has_failed(last_attempt_, now_ms))
        operation_.give_up(wire::Status::kRpcFail);
    if (operation_.done() || now_ms < looked_up_ms_ + kWakeMs) return;
    looked_up_ms_ = now_ms;
    if (is_given_up()) operation_.give_up(wire::Status::kClosed);
}

// Closed or interrupted; the caller is asked no more once it has said so.
bool Call::is_given_up() {
    if (!was_interrupted_ && interrupted_) was_interrupted_ = interrupted_();
    return was_interrupted_ || driver_.is_closed();
}

// The deadline came while a peer had been silent for long: others need not find that out again.
void Call::report_silent(std::uint64_t now_ms) {
    for (const auto& transfer : transfers_) {
        if (transfer->kind == Transfer::Kind::kLane || !transfer->is_running()) continue;
        const auto silent_ms = now_ms - std::min(now_ms, transfer->progress_ms);
        if (is_stalled(*transfer, now_ms)) {
            driver_.cluster().peer_failed(transfer->peer, Failure::kStalled, now_ms);
        } else if (silent_ms >= kSilentMs && now_ms >= operation_.deadline_ms()) {
            driver_.cluster().peer_failed(transfer->peer, Failure::kDeadline, now_ms);
        }
    }
}

}  // namespace mooncake::client
