#include "transfer/call.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "net/event_loop.h"

namespace mooncake::transfer {

using net::IoResult;
using net::monotonic_ms;
using wire::Status;

namespace {

// One request up to this size is carried out without polling: two system calls less.
constexpr std::uint64_t kAloneBytesMax = 1u << 20;

}  // namespace

Call::~Call() {
    for (Stream& stream : streams_) {
        if (stream.exchange && stream.exchange->take_socket()) peer_->pool().drop(0);
    }
}

CallResult Call::transfer(wire::Verb verb, Plan& plan) {
    if (plan.done()) return reach();
    Portion first = plan.next();
    if (!plan.done() || first.bytes > kAloneBytesMax) return run_streams(verb, plan, std::move(first));
    Exchange exchange(verb, std::move(first));
    return run_alone(exchange);
}

CallResult Call::ask(wire::Verb verb, wire::Bytes body, wire::Buffer& answer) {
    Exchange exchange(verb, body);
    CallResult result = run_alone(exchange);
    answer.assign(exchange.body().begin(), exchange.body().end());
    return result;
}

CallResult Call::reach() {
    std::unique_ptr<net::ClientSocket> socket;
    bool is_reused = false;
    if (const Failure failure = connect(false, true, socket, is_reused)) return *failure;
    give_back(std::move(socket));
    return {};
}

// ---- connections

Call::Failure Call::connect(bool fresh, bool may_wait, std::unique_ptr<net::ClientSocket>& socket,
                            bool& is_reused) {
    using Taken = net::ConnectionPool::Taken;
    while (true) {
        const Taken taken = peer_->pool().take(fresh, 0, socket);
        is_reused = taken == Taken::kConnection;
        if (taken == Taken::kFull) {
            if (!may_wait) return std::nullopt;
            peer_->pool().wait(net::kLookUpMs);
            if (const Failure failure = look_up()) return failure;
            continue;
        }
        if (taken == Taken::kSlot) {
            CallResult failure;
            socket = dial(failure);
            if (!socket) {
                peer_->pool().drop(0);
                return failure;
            }
        }
        if (!process_) process_ = socket->peer_process();
        if (*process_ == socket->peer_process()) return std::nullopt;
        socket.reset();
        peer_->pool().drop(0);
        return failed(Status::kGone, net::to_text(peer_->endpoint()) +
                                         ": another process is there now than when the call began");
    }
}

std::unique_ptr<net::ClientSocket> Call::dial(CallResult& failure) {
    std::string why;
    auto status = Status::kOk;
    const std::uint64_t until_ms =
        std::min(patience_.deadline_ms, monotonic_ms() + settings_.connect_timeout_ms);
    auto socket = net::ClientSocket::connect(peer_->endpoint(), settings_.hello,
                                             {until_ms, patience_.given_up}, why, status);
    if (!socket) {
        failure = failed(status, std::move(why));
    } else if (!peer_->recognise(socket->peer_process())) {
        failure = failed(Status::kGone, net::to_text(peer_->endpoint()) +
                                            ": another process is there now than the one before; ask again "
                                            "with the addresses of its memory");
        socket.reset();
    }
    return socket;
}

void Call::give_back(std::unique_ptr<net::ClientSocket> socket) {
    peer_->pool().give_back(std::move(socket), 0);
}

// ---- failures

Call::Failure Call::look_up() {
    looked_up_ms_ = monotonic_ms();
    if (patience_.is_given_up()) return ended(IoResult::kDeadline, "");
    if (looked_up_ms_ >= patience_.deadline_ms) return ended(IoResult::kDeadline, "");
    return std::nullopt;
}

CallResult Call::ended(IoResult result, std::string why) {
    if (patience_.is_given_up()) return failed(Status::kClosed, "the call was given up");
    if (result != IoResult::kDeadline) {
        const auto status = result == IoResult::kMalformed ? Status::kMalformed : Status::kRpcFail;
        return failed(status, std::move(why));
    }
    const char* what =
        monotonic_ms() >= patience_.deadline_ms ? ": not done within its time" : ": nothing moves any more";
    return failed(Status::kDeadline, net::to_text(peer_->endpoint()) + what);
}

CallResult Call::failed(Status status, std::string why) {
    peer_->forget();  // the caller is told; who asks anew takes whoever is there
    return {status, std::move(why)};
}

// ---- one request

CallResult Call::run_alone(Exchange& exchange) {
    for (bool fresh = false;; fresh = true) {
        std::unique_ptr<net::ClientSocket> socket;
        bool is_reused = false;
        if (const Failure failure = connect(fresh, true, socket, is_reused)) return *failure;
        exchange.begin(std::move(socket));
        const std::uint64_t until_ms =
            std::min(patience_.deadline_ms, monotonic_ms() + settings_.stall_timeout_ms);
        const IoResult result = exchange.run({until_ms, patience_.given_up});
        if (result == IoResult::kDone) {
            give_back(exchange.take_socket());
            return {exchange.status(), exchange.why()};
        }
        std::string why = exchange.error();
        exchange.take_socket().reset();
        peer_->pool().drop(0);
        if (result != IoResult::kClosed || !is_reused) return ended(result, std::move(why));
    }
}

// ---- several

CallResult Call::run_streams(wire::Verb verb, Plan& plan, Portion first) {
    streams_.resize(1);
    Stream& main = streams_.front();
    std::unique_ptr<net::ClientSocket> socket;
    if (const Failure failure = connect(false, true, socket, main.is_reused)) return *failure;
    main.exchange = std::make_unique<Exchange>(verb, std::move(first));
    main.exchange->begin(std::move(socket));
    main.progress_ms = monotonic_ms();
    open_streams(verb, plan);
    for (std::size_t ready = 0;; ready = 0) {
        for (Stream& stream : streams_) {
            if (!stream.exchange) continue;
            if (const Failure failure = advance(stream, verb, plan)) return *failure;
            if (stream.exchange) ++ready;
        }
        if (ready == 0) return {};
        if (const Failure failure = poll_streams()) return *failure;
    }
}

// As many more as there is work and as there are connections to be had now.
void Call::open_streams(wire::Verb verb, Plan& plan) {
    while (streams_.size() < kStreamsMax && !plan.done()) {
        Stream stream;
        std::unique_ptr<net::ClientSocket> socket;
        // What is wrong with the peer the first one will find out.
        if (connect(false, false, socket, stream.is_reused) || !socket) return;
        stream.exchange = std::make_unique<Exchange>(verb, plan.next());
        stream.exchange->begin(std::move(socket));
        stream.progress_ms = monotonic_ms();
        streams_.push_back(std::move(stream));
    }
}

Call::Failure Call::advance(Stream& stream, wire::Verb verb, Plan& plan) {
    while (true) {
        const IoResult result = stream.exchange->advance();
        if (result == IoResult::kWouldBlock) return std::nullopt;
        if (result == IoResult::kClosed && stream.is_reused) return repeat(stream);
        if (result != IoResult::kDone) return ended(result, stream.exchange->error());
        stream.is_reused = false;
        const CallResult answer{stream.exchange->status(), stream.exchange->why()};
        auto socket = stream.exchange->take_socket();
        stream.exchange.reset();
        if (!wire::ok(answer.status) || plan.done()) {
            give_back(std::move(socket));
            return wire::ok(answer.status) ? Failure() : Failure(answer);
        }
        stream.exchange = std::make_unique<Exchange>(verb, plan.next());
        stream.exchange->begin(std::move(socket));
    }
}

// The connection had ended before this call: once more, on a new one.
Call::Failure Call::repeat(Stream& stream) {
    stream.exchange->take_socket().reset();
    peer_->pool().drop(0);
    std::unique_ptr<net::ClientSocket> socket;
    if (const Failure failure = connect(true, true, socket, stream.is_reused)) return failure;
    stream.exchange->begin(std::move(socket));
    return std::nullopt;
}

Call::Failure Call::poll_streams() {
    polled_.clear();
    for (const Stream& stream : streams_) {
        if (stream.exchange) polled_.push_back({stream.exchange->fd(), stream.exchange->events(), 0});
    }
    const int count = ::poll(polled_.data(), polled_.size(), static_cast<int>(net::kLookUpMs));
    const std::uint64_t now = monotonic_ms();
    if (count < 0 || now >= looked_up_ms_ + net::kLookUpMs || now >= patience_.deadline_ms) {
        if (const Failure failure = look_up()) return failure;
    }
    std::size_t next = 0;
    for (Stream& stream : streams_) {
        if (!stream.exchange) continue;
        if (polled_[next++].revents != 0) stream.progress_ms = now;
        if (now >= stream.progress_ms + settings_.stall_timeout_ms) return ended(IoResult::kDeadline, "");
    }
    return std::nullopt;
}

}  // namespace mooncake::transfer
