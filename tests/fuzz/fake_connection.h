// A connection without a socket: takes a peer's bytes apart as net::SocketConnection does, hands frames to
// the real handler, and keeps what it sends until the peer takes it. Callbacks come only from the calls of
// the peer's side, as net/connection.h promises.
#pragma once

#include <unistd.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "fuzz.h"
#include "net/connection.h"
#include "net/iovecs.h"

namespace fuzz {

namespace net = mooncake::net;

class FakeConnection final : public net::Connection {
  public:
    using Sent = std::function<void(const net::Outgoing&)>;

    // on_send: sees each frame when the handler sends it. `loop` may be null where no handler asks for it.
    explicit FakeConnection(net::EventLoop* loop, Sent on_send) : loop_(loop), on_send_(std::move(on_send)) {}
    ~FakeConnection() override { REQUIRE(handler_ == nullptr); }
    // As if it came over a Unix socket, from a process of this user.
    void set_local() { is_local_ = true; }
    std::optional<std::uint32_t> peer_user() const override {
        return is_local_ ? std::optional<std::uint32_t>(::geteuid()) : std::nullopt;
    }
    void set_handler(std::unique_ptr<net::ConnectionHandler> handler) { handler_ = std::move(handler); }

    // ---- what handlers call
    void send(wire::Buffer frame) override {
        net::Outgoing outgoing;
        outgoing.head = std::move(frame);
        send(std::move(outgoing));
    }
    void send(net::Outgoing frame) override {
        if (is_over()) {
            refused_.push_back(std::move(frame));
            return;
        }
        on_send_(frame);
        queue_.push_back(std::move(frame));
    }
    void receive_payload(std::vector<iovec> targets, std::function<void(bool)> done) override {
        REQUIRE(!done_);
        targets_ = std::move(targets);
        targets_left_ = targets_;
        net::skip_bytes(targets_left_, 0);
        done_ = std::move(done);
    }
    void close(std::string, bool) override { closing_ = true; }
    net::EventLoop& loop() override {
        REQUIRE(loop_ != nullptr);
        return *loop_;
    }
    std::string peer() const override { return "peer"; }
    std::uint64_t id() const override { return 1; }

    // ---- the peer's side
    bool is_over() const { return closing_ || handler_ == nullptr; }
    bool wants_payload() const { return done_ != nullptr; }
    std::size_t payload_left() const { return net::total_bytes(targets_left_); }

    // The peer sent these bytes. Where the handler or the bytes end the connection, end() follows.
    void feed(wire::Bytes bytes) {
        const auto alive = shared_from_this();
        pending_.insert(pending_.end(), bytes.begin(), bytes.end());
        std::size_t at = 0;
        while (!is_over()) {
            const wire::Bytes unread = wire::Bytes(pending_).subspan(at);
            if (done_) {
                at += take_payload(unread);
                if (done_) break;
                continue;
            }
            if (unread.size() < wire::kFrameHeaderBytes) break;
            const auto header = wire::parse_frame_header(unread.first(wire::kFrameHeaderBytes), body_max_);
            if (!header) {
                closing_ = true;
                break;
            }
            if (unread.size() < wire::kFrameHeaderBytes + header->body_bytes) break;
            body_max_ = wire::kBodyBytesMax;
            // A copy of its own length, so that a sanitizer sees a read beyond it.
            const wire::Bytes body = unread.subspan(wire::kFrameHeaderBytes, header->body_bytes);
            const wire::Buffer exact(body.begin(), body.end());
            at += wire::kFrameHeaderBytes + header->body_bytes;
            handler_->on_frame(*this, *header, exact);
        }
        pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(at));
        if (closing_) end();
    }

    // The kernel took the oldest frame that is still queued; false: none is.
    bool take_sent() {
        if (queue_.empty()) return false;
        const net::Outgoing frame = std::move(queue_.front());
        queue_.pop_front();
        if (frame.sent) frame.sent(true);
        return true;
    }
    const net::Outgoing* oldest() const { return queue_.empty() ? nullptr : &queue_.front(); }

    // The connection ends, whoever wanted it: what was not received or sent is answered false, then on_close.
    void end() {
        const auto alive = shared_from_this();
        if (handler_ == nullptr) return;
        closing_ = true;
        if (const auto done = std::exchange(done_, nullptr)) done(false);
        for (const auto& frame : std::exchange(queue_, {})) {
            if (frame.sent) frame.sent(false);
        }
        for (const auto& frame : std::exchange(refused_, {})) {
            if (frame.sent) frame.sent(false);
        }
        const auto handler = std::move(handler_);
        handler_ = nullptr;
        handler->on_close(*this, "the peer closed");
        for (const auto& frame : std::exchange(refused_, {})) {
            if (frame.sent) frame.sent(false);
        }
    }

  private:
    std::size_t take_payload(wire::Bytes bytes) {
        std::size_t taken = 0;
        while (!targets_left_.empty() && taken < bytes.size()) {
            const iovec& target = targets_left_.front();
            const std::size_t n = std::min(target.iov_len, bytes.size() - taken);
            if (target.iov_base != nullptr) std::memcpy(target.iov_base, bytes.data() + taken, n);
            taken += n;
            net::skip_bytes(targets_left_, n);
        }
        if (targets_left_.empty()) {
            if (const auto done = std::exchange(done_, nullptr)) done(true);
        }
        return taken;
    }

    net::EventLoop* loop_;
    Sent on_send_;
    std::unique_ptr<net::ConnectionHandler> handler_;
    std::size_t body_max_ = wire::kHelloBytesMax;
    wire::Buffer pending_;
    std::deque<net::Outgoing> queue_;
    std::deque<net::Outgoing> refused_;  // sent after the end
    std::vector<iovec> targets_;
    std::span<iovec> targets_left_;
    std::function<void(bool)> done_;
    bool closing_ = false;
    bool is_local_ = false;
};
using FakePtr = std::shared_ptr<FakeConnection>;

inline wire::Buffer frame(wire::Verb verb, std::uint64_t request_id, wire::Bytes body,
                          std::uint64_t epoch = 0, std::uint8_t flags = 0,
                          wire::Status status = wire::Status::kOk) {
    wire::FrameHeader header;
    header.verb = verb;
    header.request_id = request_id;
    header.epoch = epoch;
    header.flags = flags;
    header.status = status;
    wire::Buffer buffer;
    const std::size_t start = wire::begin_frame(buffer, header);
    wire::Writer(buffer).bytes(body);
    wire::finish_frame(buffer, start);
    return buffer;
}

inline wire::Buffer hello(wire::Role role, std::uint8_t process) {
    wire::Hello message;
    message.role = role;
    message.process = {process, 1};
    return frame(wire::Verb::kHello, 1, packed([&](wire::Writer& writer) { wire::encode(message, writer); }));
}

inline wire::Buffer copied(wire::Bytes bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace fuzz
