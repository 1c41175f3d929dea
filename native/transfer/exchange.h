// One request to another engine over one connection, advanced without blocking: bytes written from this
// process's memory or read into it, or a question without bytes. The call (transfer/call.h) polls.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/client_socket.h"
#include "transfer/core/plan.h"
#include "wire/frame.h"

namespace mooncake::transfer {

class Exchange {
  public:
    // A part of a transfer; verb: kTransferRead or kTransferWrite.
    Exchange(wire::Verb verb, Portion portion);
    // A question whose answer may have a body.
    Exchange(wire::Verb verb, wire::Bytes body);

    // On a connection that nobody else uses; also again, on another one: reads and writes may be repeated.
    void begin(std::unique_ptr<net::ClientSocket> socket);
    // As far as it goes now. kDone: the answer is whole, and status() says what it is. Anything but kDone and
    // kWouldBlock: the connection is of no use any more.
    net::IoResult advance();
    // The same, waiting for as long as patience lasts.
    net::IoResult run(const net::Patience& patience);

    int fd() const { return socket_->fd(); }
    short events() const;
    wire::Status status() const { return status_; }
    const std::string& why() const { return why_; }  // of a status that is not OK
    wire::Bytes body() const { return body_; }
    const std::string& error() const { return socket_->error(); }
    std::unique_ptr<net::ClientSocket> take_socket() { return std::move(socket_); }

  private:
    enum class State : std::uint8_t { kSending, kReceiving, kPayload };

    net::IoResult on_answer(const wire::FrameHeader& header, wire::Bytes body);
    bool is_read() const { return verb_ == wire::Verb::kTransferRead; }

    const wire::Verb verb_;
    const Portion portion_;
    wire::Buffer frame_;
    std::unique_ptr<net::ClientSocket> socket_;
    State state_ = State::kSending;
    std::uint64_t request_id_ = 0;
    std::vector<iovec> pieces_;  // what is sent or, of a read, received
    std::span<iovec> left_;
    wire::Status status_ = wire::Status::kOk;
    std::string why_;
    wire::Buffer body_;
};

}  // namespace mooncake::transfer
