#include "net/socket_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <exception>
#include <utility>

#include "net/address.h"
#include "net/iovecs.h"
#include "net/local_socket.h"

namespace mooncake::net {

namespace {

// What one connection may move before the others on its loop have their turn.
constexpr std::size_t kReceiveBudget = 4u << 20;
constexpr std::size_t kSendBudget = 8u << 20;
// Replies to frames that came together leave together, but not later than this.
constexpr std::size_t kFlushBytes = 256u << 10;
// After a last word (a refusal, say) we wait this long for the peer to close first: closing with its bytes
// unread would make the kernel send a reset, which can overtake that word.
constexpr std::uint64_t kLingerMs = 1'000;

// Amid a payload so much is waited for: a wake-up for each 64 KiB that the kernel takes in costs a third of
// the time of receiving them. A peer that brings nothing for so long is heard byte by byte, or its little
// would pass for a stall.
constexpr int kReceiveMarkBytes = 128 << 10;
constexpr std::uint64_t kSlowPayloadMs = 200;

std::atomic<std::uint64_t> last_id = 0;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

// Keeps the connection alive while something of it is on the stack, and settles what that led to.
class SocketConnection::Dispatch {
  public:
    explicit Dispatch(SocketConnection& connection)
        : connection_(connection), alive_(connection.shared_from_this()) {
        if (connection_.dispatching_++ == 0) connection_.send_budget_ = kSendBudget;
    }
    ~Dispatch() {
        if (connection_.dispatching_ == 1) connection_.settle();
        --connection_.dispatching_;
    }
    Dispatch(const Dispatch&) = delete;
    Dispatch& operator=(const Dispatch&) = delete;

  private:
    SocketConnection& connection_;
    const std::shared_ptr<Connection> alive_;
};

SocketConnection::SocketConnection(EventLoop& loop, FileDescriptor socket, const ConnectionLimits& limits,
                                   std::size_t first_body_max, std::unique_ptr<ConnectionHandler> handler,
                                   Ended ended)
    : loop_(loop),
      socket_(std::move(socket)),
      limits_(limits),
      peer_(peer_address(socket_.get()).text()),
      peer_user_(net::peer_user(socket_.get())),
      id_(++last_id),
      handler_(std::move(handler)),
      ended_(std::move(ended)),
      body_max_(std::min(first_body_max, limits.body_bytes_max)) {}

void SocketConnection::start() {
    self_ = shared_from_this();
    const Dispatch dispatch(*this);
    hello_since_ms_ = monotonic_ms();
    try {
        interest_ = EPOLLIN | EPOLLRDHUP;
        loop_.watch(socket_.get(), interest_, *this);
        watched_ = true;
        loop_.want_sweep();
    } catch (const std::exception& error) {
        end(error.what());
    }
}

// ---- receiving

void SocketConnection::on_events(std::uint32_t events) {
    const Dispatch dispatch(*this);
    if ((events & EPOLLOUT) != 0) blocked_ = false;
    if (ending_ == Ending::kLingering || ending_ == Ending::kLookedThrough) {
        discard_input();
    } else if (is_reading()) {
        if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) receive();
    } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
        int error = 0;
        socklen_t length = sizeof error;
        getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
        peer_closed_ = true;
        end(error != 0 ? errno_text(error) : "closed by the peer");
    } else if ((events & EPOLLRDHUP) != 0 && ending_ == Ending::kNo) {
        peer_closed_ = true;
        end("closed by the peer, which was not reading its answers");
    }
}

void SocketConnection::receive() {
    std::size_t received = 0;
    while (is_reading() && received < kReceiveBudget) {
        ssize_t n;
        std::size_t asked = 0;
        if (receiving_payload_) {
            n = receive_some(socket_.get(), targets_left_, asked, MSG_DONTWAIT);
        } else {
            const std::span<std::uint8_t> room = buffer_.room(wanted_);
            asked = room.size();
            n = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
        }
        if (n < 0) {
            if (errno == EINTR) continue;
            if (would_block(errno)) return;
            peer_closed_ = true;
            return end(errno_text(errno));
        }
        if (n == 0) {
            peer_closed_ = true;
            end(receiving_payload_ ? "closed by the peer amid a payload" : "closed by the peer");
            return;
        }
        const auto count = static_cast<std::size_t>(n);
        received += count;
        const bool was_payload = receiving_payload_;
        if (was_payload) {
            payload_since_ms_ = monotonic_ms();
            skip_bytes(targets_left_, count);
        } else {
            buffer_.add(count);
        }
        process();
        // Less than was asked for was all there is, and after a payload its sender waits for the answer: the
        // next call would find nothing. Where that is wrong, the loop calls again.
        if (count < asked || (was_payload && !receiving_payload_)) return;
    }
}

// Takes what is there apart, until it needs more bytes or must not go on.
void SocketConnection::process() {
    while (is_reading()) {
        if (receiving_payload_ ? !process_payload() : !process_frame()) break;
    }
    if (receiving_payload_ || buffer_.empty()) {
        frame_since_ms_ = 0;
        buffer_.release_large();
    } else if (frame_since_ms_ == 0) {
        frame_since_ms_ = monotonic_ms();
        loop_.want_sweep();
    }
}

bool SocketConnection::process_payload() {
    buffer_.drain_into(targets_left_);
    if (!targets_left_.empty()) return false;
    receiving_payload_ = false;
    payload_since_ms_ = 0;
    targets_.clear();
    if (const auto done = std::exchange(done_, nullptr)) done(true);
    return true;
}

bool SocketConnection::process_frame() {
    if (outgoing_bytes_ > std::min(limits_.outgoing_bytes_max, kFlushBytes)) flush();
    if (outgoing_bytes_ > limits_.outgoing_bytes_max) {
        paused_ = true;
        return false;
    }
    const wire::Bytes unread = buffer_.unread();
    wanted_ = wire::kFrameHeaderBytes;
    if (unread.size() < wanted_) return false;
    const auto header = wire::parse_frame_header(unread.first(wanted_), body_max_);
    if (!header) {
        sent_garbage_ = true;
        end("sent bytes that are not a frame, or one longer than is taken here");
        return false;
    }
    wanted_ += header->body_bytes;
    if (unread.size() < wanted_) return false;
    buffer_.consume(wanted_);
    wanted_ = 0;
    frame_since_ms_ = 0;
    hello_since_ms_ = 0;
    body_max_ = limits_.body_bytes_max;
    try {
        handler_->on_frame(*this, *header, unread.subspan(wire::kFrameHeaderBytes, header->body_bytes));
    } catch (const std::exception& error) {
        end(std::string("handling ") + wire::verb_name(header->verb) + " failed: " + error.what());
    }
    return true;
}

void SocketConnection::receive_payload(std::vector<iovec> targets, std::function<void(bool)> done) {
    assert(loop_.in_loop() && !receiving_payload_);
    receiving_payload_ = true;
    is_payload_slow_ = false;
    targets_ = std::move(targets);
    targets_left_ = targets_;
    skip_bytes(targets_left_, 0);
    done_ = std::move(done);
    payload_since_ms_ = monotonic_ms();
    loop_.want_sweep();
    if (dispatching_ == 0) schedule();
}

void SocketConnection::discard_input() {
    std::array<std::uint8_t, 4096> ignored;
    std::size_t discarded = 0;
    while (discarded < kReceiveBudget) {
        const ssize_t n = ::recv(socket_.get(), ignored.data(), ignored.size(), MSG_DONTWAIT);
        if (n > 0) {
            discarded += static_cast<std::size_t>(n);
        } else {
            if (n != 0 && would_block(errno)) return;
            peer_closed_ = true;
            ending_ = Ending::kNow;
            return;
        }
    }
}

// ---- sending

void SocketConnection::send(wire::Buffer frame) {
    Outgoing outgoing;
    outgoing.head = std::move(frame);
    send(std::move(outgoing));
}

void SocketConnection::send(Outgoing frame) {
    if (loop_.in_loop()) {
        if (has_incoming_) take_incoming();  // what other threads sent before comes before
        enqueue(std::move(frame));
        if (dispatching_ == 0) schedule();
        return;
    }
    bool first = false;
    bool refused = false;
    {
        const std::lock_guard lock(incoming_mutex_);
        refused = refusing_;
        if (!refused) {
            first = incoming_.empty();
            incoming_.push_back(std::move(frame));
            has_incoming_ = true;
        }
    }
    if (first) {
        loop_.post([alive = shared_from_this(), this] { const Dispatch dispatch(*this); });
    } else if (refused && frame.sent) {
        const auto sent = std::make_shared<std::function<void(bool)>>(std::move(frame.sent));
        if (!loop_.try_post([sent] { (*sent)(false); })) (*sent)(false);
    }
}

void SocketConnection::enqueue(Outgoing frame) {
    if (ending_ != Ending::kNo) {
        if (frame.sent) {
            loop_.post([sent = std::move(frame.sent)] { sent(false); });
        }
        return;
    }
    Queued queued;
    assert(frame.descriptors.size() <= kDescriptorsMax);
    queued.counted_bytes = frame.head.size() + frame.payload.size() * sizeof(iovec) + sizeof(Queued);
    queued.frame = std::move(frame);
    outgoing_bytes_ += queued.counted_bytes;
    queue_.push_back(std::move(queued));
}

void SocketConnection::take_incoming() {
    std::vector<Outgoing> taken;
    {
        const std::lock_guard lock(incoming_mutex_);
        taken.swap(incoming_);
        has_incoming_ = false;
    }
    for (Outgoing& frame : taken) enqueue(std::move(frame));
}

// Fills `pieces` with the front of the queue; `more`: not all of it.
std::size_t SocketConnection::gather(std::span<iovec> pieces, bool& more) {
    std::size_t count = 0;
    more = false;
    for (Queued& queued : queue_) {
        Outgoing& frame = queued.frame;
        // What descriptors go along with begins a call of its own.
        if (!frame.descriptors.empty() && count > 0) return more = true, count;
        if (queued.head_sent < frame.head.size()) {
            if (count == pieces.size()) return more = true, count;
            pieces[count++] = {frame.head.data() + queued.head_sent, frame.head.size() - queued.head_sent};
        }
        for (std::size_t i = queued.pieces_sent; i < frame.payload.size(); ++i) {
            if (count == pieces.size()) return more = true, count;
            pieces[count++] = frame.payload[i];
        }
    }
    return count;
}

// Advances the queue past n bytes that the kernel took, and past whatever is complete.
void SocketConnection::sent_bytes(std::size_t n) {
    while (!queue_.empty()) {
        Queued& queued = queue_.front();
        const std::size_t of_head = std::min(n, queued.frame.head.size() - queued.head_sent);
        queued.head_sent += of_head;
        n -= of_head;
        if (queued.head_sent < queued.frame.head.size()) return;
        std::span<iovec> left = std::span(queued.frame.payload).subspan(queued.pieces_sent);
        while (!left.empty() && n >= left.front().iov_len) {
            n -= left.front().iov_len;
            left = left.subspan(1);
            ++queued.pieces_sent;
        }
        if (!left.empty()) {
            skip_bytes(left, n);
            return;
        }
        outgoing_bytes_ -= queued.counted_bytes;
        if (queued.frame.sent) completed_.push_back(std::move(queued.frame.sent));
        queue_.pop_front();
    }
}

void SocketConnection::flush() {
    while (!queue_.empty() && !blocked_ && (ending_ == Ending::kNo || ending_ == Ending::kAfterSending)) {
        std::array<iovec, kIovecsACall> pieces;
        bool more = false;
        msghdr message{};
        message.msg_iov = pieces.data();
        message.msg_iovlen = gather(pieces, more);
        const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
        auto& descriptors = queue_.front().frame.descriptors;
        const ssize_t n =
            descriptors.empty()
                ? ::sendmsg(socket_.get(), &message, flags)
                : send_with_descriptors(socket_.get(), std::span(pieces).first(message.msg_iovlen),
                                        descriptors, flags);
        if (n > 0) descriptors.clear();
        if (n < 0) {
            if (errno == EINTR) continue;
            if (!would_block(errno)) return end(errno_text(errno));
            blocked_ = true;
        } else {
            const auto count = static_cast<std::size_t>(n);
            sent_bytes(count);
            send_since_ms_ = queue_.empty() ? 0 : monotonic_ms();
            send_budget_ -= std::min(send_budget_, count);
            // EPOLLOUT comes at once, after the others' turn.
            if (send_budget_ == 0 && !queue_.empty()) blocked_ = true;
        }
        if (blocked_ && !queue_.empty()) {
            if (send_since_ms_ == 0) send_since_ms_ = monotonic_ms();
            loop_.want_sweep();
        }
    }
}

// ---- ending

void SocketConnection::close(std::string reason, bool after_sending) {
    if (!loop_.in_loop()) {
        loop_.post([alive = shared_from_this(), this, reason = std::move(reason), after_sending]() mutable {
            close(std::move(reason), after_sending);
        });
        return;
    }
    if (ending_ == Ending::kEnded || ending_ == Ending::kNow) return;
    const Dispatch dispatch(*this);
    if (!after_sending) return end(std::move(reason));
    if (ending_ != Ending::kNo) return;
    if (has_incoming_) take_incoming();
    ending_ = Ending::kAfterSending;
    reason_ = std::move(reason);
}

void SocketConnection::end(std::string reason) {
    if (ending_ == Ending::kEnded || ending_ == Ending::kNow) return;
    if (ending_ == Ending::kNo) reason_ = std::move(reason);
    ending_ = Ending::kNow;
}

// Runs at the end of the outermost Dispatch. Each round makes progress or is the last.
void SocketConnection::settle() {
    while (ending_ != Ending::kEnded) {
        if (has_incoming_) take_incoming();
        flush();
        if (!completed_.empty()) {
            for (const auto& sent : std::exchange(completed_, {})) sent(true);
            continue;
        }
        if (ending_ != Ending::kNo) {
            advance_ending();
            if (ending_ == Ending::kNow && !peer_closed_ && handler_->is_looked_through()) {
                stop_serving();
            } else if (ending_ == Ending::kNow) {
                finish();
            }
            break;
        }
        if (!paused_ || outgoing_bytes_ > limits_.outgoing_bytes_max / 2) break;
        paused_ = false;
        frame_since_ms_ = 0;
        process();
        if (ending_ == Ending::kNo && queue_.empty()) break;
    }
    if (ending_ == Ending::kEnded) return;
    update_interest();
    update_receive_mark();
}

void SocketConnection::advance_ending() {
    if (ending_ != Ending::kAfterSending || !queue_.empty()) return;
    ::shutdown(socket_.get(), SHUT_WR);
    ending_ = Ending::kLingering;
    linger_since_ms_ = monotonic_ms();
    loop_.want_sweep();
}

// The peer sees the end, and closes its own when it looks at our memory no more.
void SocketConnection::stop_serving() {
    ending_ = Ending::kLookedThrough;
    ::shutdown(socket_.get(), SHUT_WR);
    hello_since_ms_ = frame_since_ms_ = payload_since_ms_ = send_since_ms_ = linger_since_ms_ = 0;
    give_up_transfers();
}

void SocketConnection::finish() {
    ending_ = Ending::kEnded;
    if (watched_) loop_.unwatch(socket_.get());
    socket_.reset();
    give_up_transfers();
    if (sent_garbage_ || (hello_since_ms_ != 0 && !buffer_.empty())) handler_->on_garbage(*this);
    handler_->on_close(*this, reason_);
    handler_.reset();
    if (const auto ended = std::exchange(ended_, nullptr)) ended(id_);
    self_.reset();
}

void SocketConnection::give_up_transfers() {
    std::vector<Outgoing> dropped;
    {
        const std::lock_guard lock(incoming_mutex_);
        refusing_ = true;
        dropped.swap(incoming_);
        has_incoming_ = false;
    }
    for (Queued& queued : std::exchange(queue_, {})) {
        if (queued.frame.sent) queued.frame.sent(false);
    }
    for (Outgoing& frame : dropped) {
        if (frame.sent) frame.sent(false);
    }
    targets_left_ = {};
    if (const auto done = std::exchange(done_, nullptr)) done(false);
}

void SocketConnection::schedule() {
    if (std::exchange(scheduled_, true)) return;
    loop_.post([alive = shared_from_this(), this] {
        scheduled_ = false;
        const Dispatch dispatch(*this);
        if (receiving_payload_) process();
    });
}

void SocketConnection::update_interest() {
    std::uint32_t wanted = 0;
    if (is_reading()) {
        wanted = EPOLLIN | EPOLLRDHUP;
    } else if (ending_ == Ending::kLingering || ending_ == Ending::kLookedThrough) {
        wanted = EPOLLIN;
    } else if (ending_ == Ending::kNo) {
        wanted = EPOLLRDHUP;
    }
    if (!queue_.empty()) wanted |= EPOLLOUT;
    if (!watched_ || wanted == interest_) return;
    interest_ = wanted;
    loop_.change(socket_.get(), interest_, *this);
}

// Of a TCP socket; a Unix socket is readable whatever its mark.
void SocketConnection::update_receive_mark() {
    if (peer_user_) return;
    std::size_t left = 0;
    if (receiving_payload_ && !is_payload_slow_) {
        for (std::size_t i = 0; i < targets_left_.size() && left < kReceiveMarkBytes; ++i)
            left += targets_left_[i].iov_len;
    }
    const int mark = left >= kReceiveMarkBytes ? kReceiveMarkBytes : 1;
    if (std::exchange(receive_mark_, mark) == mark) return;
    // Where the kernel does not know it, each byte wakes as before. When it is lowered, what is there wakes.
    static_cast<void>(setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark));
}

bool SocketConnection::on_sweep(std::uint64_t now_ms) {
    const Dispatch dispatch(*this);
    if (receive_mark_ > 1 && now_ms > payload_since_ms_ && now_ms - payload_since_ms_ >= kSlowPayloadMs) {
        is_payload_slow_ = true;
        payload_since_ms_ = now_ms;  // what lies below the mark may have come just now
    }
    struct Deadline {
        std::uint64_t since_ms;
        std::uint64_t allowed_ms;
        const char* what;
    };
    const std::array<Deadline, 5> deadlines{{
        {hello_since_ms_, limits_.hello_timeout_ms, "sent no first frame"},
        {is_reading() ? frame_since_ms_ : 0, limits_.frame_timeout_ms, "did not finish a frame"},
        {is_reading() ? payload_since_ms_ : 0, limits_.payload_stall_ms, "sent nothing of a payload"},
        {send_since_ms_, limits_.send_stall_ms, "took nothing of what was sent"},
        {linger_since_ms_, kLingerMs, "did not close"},
    }};
    bool waiting = false;
    for (const Deadline& deadline : deadlines) {
        if (deadline.since_ms == 0) continue;
        waiting = true;
        // A time stamp may be newer than the sweep's.
        if (now_ms > deadline.since_ms && now_ms - deadline.since_ms >= deadline.allowed_ms) {
            end(std::string("the peer ") + deadline.what + " for " + std::to_string(deadline.allowed_ms) +
                " ms");
        }
    }
    return waiting;
}

void SocketConnection::on_loop_end() {
    const Dispatch dispatch(*this);
    peer_closed_ = true;  // nobody serves or writes any more
    end("the event loop has stopped");
}

}  // namespace mooncake::net
