// One exchange over one connection, advanced without blocking: a request to the master, a read from a node, a
// write to one. The call (client/call.h) polls; a transfer sends, receives and checks.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/core/operation.h"
#include "client/core/read_assembly.h"
#include "client/mapped_read.h"
#include "client/memory.h"
#include "net/client_socket.h"
#include "net/connection_pool.h"

namespace mooncake::client {

class Transfer {
  public:
    enum class Kind : std::uint8_t { kLane, kRead, kWrite };
    enum class State : std::uint8_t { kQueued, kDialling, kSending, kReceiving, kOver };

    Transfer(Kind of_kind, Ticket of_ticket, std::shared_ptr<net::ConnectionPool> from,
             std::uint64_t payload_bytes, std::uint64_t until_ms)
        : kind(of_kind),
          ticket(of_ticket),
          deadline_ms(until_ms),
          pool_(std::move(from)),
          bytes_(payload_bytes) {}
    // Closes a connection whose reply is not complete.
    virtual ~Transfer();
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;

    const Kind kind;
    const Ticket ticket;
    const std::uint64_t deadline_ms;
    PeerId peer = kNoPeer;
    State state = State::kQueued;
    std::uint64_t progress_ms = 0;  // when bytes moved last

    bool is_running() const { return state != State::kQueued && state != State::kOver; }
    net::ConnectionPool& pool() { return *pool_; }
    std::uint64_t bytes() const { return bytes_; }
    int fd() const { return dial_ ? dial_->fd() : socket_->fd(); }
    short events() const;
    const std::string& why() const { return dial_ ? dial_->why() : socket_->error(); }
    // When advance() must be called though nothing has come.
    std::uint64_t due_ms() const { return dial_ ? std::min(deadline_ms, dial_->due_ms()) : deadline_ms; }

    // It has a slot of its pool, and no connection yet: kDialling.
    void begin_dial(std::unique_ptr<net::ClientDial> dial);
    // kDone: begin() with connection().
    net::IoResult advance_dial() { return dial_->advance(); }
    wire::Status dial_status() const { return dial_->status(); }
    bool dials_locally() const { return dial_->is_local(); }
    std::unique_ptr<net::ClientSocket> connection() { return dial_->take(); }
    // Begins on this connection; `frame` stays the operation's.
    void begin(std::unique_ptr<net::ClientSocket> socket, wire::Buffer& frame);
    // As far as it goes now. kDone: the whole reply is here.
    net::IoResult advance() { return advance(0); }
    // The same, but waits in one system call until wait_until_ms if nothing has come; only while
    // expects_frame().
    net::IoResult advance(std::uint64_t wait_until_ms);
    virtual bool expects_frame() const { return state == State::kReceiving; }
    // The reply is complete and was used: the connection may serve others.
    void give_back();
    void close();

    // The reply's last frame (kLane, kWrite); valid until give_back.
    wire::FrameHeader reply{};
    wire::Bytes body;

  protected:
    virtual void add_payload(std::vector<iovec>&) {}
    // Instead of the operation's frame, now that there is a connection: these. False: the operation's.
    virtual bool replace_frame(wire::Buffer&) { return false; }
    // All was sent. kWouldBlock: an answer comes.
    virtual net::IoResult sent() { return net::IoResult::kWouldBlock; }
    // What follows on the same connection, once an answer was used.
    void send_next(wire::Buffer& frame, wire::Verb answered_as);
    std::uint64_t request_id() const { return request_id_; }
    virtual net::IoResult receive(std::uint64_t wait_until_ms);
    net::IoResult receive_frame(wire::FrameHeader& header, wire::Bytes& frame_body,
                                std::uint64_t wait_until_ms);

    net::ClientSocket& socket() { return *socket_; }
    // false: not the answer to our request.
    bool answers_us(const wire::FrameHeader& header) const;

  private:
    const std::shared_ptr<net::ConnectionPool> pool_;
    const std::uint64_t bytes_;
    wire::Verb verb_ = wire::Verb::kPing;
    bool has_slot_ = false;
    std::unique_ptr<net::ClientDial> dial_;  // while kDialling
    std::unique_ptr<net::ClientSocket> socket_;
    std::uint64_t request_id_ = 0;
    wire::Buffer replaced_;
    std::vector<iovec> pieces_;
    std::span<iovec> unsent_;
};

class WriteTransfer final : public Transfer {
  public:
    WriteTransfer(Ticket of_ticket, std::shared_ptr<net::ConnectionPool> from, const NodeWrite& write,
                  std::span<const Value> values)
        : Transfer(Kind::kWrite, of_ticket, std::move(from), write.bytes, write.deadline_ms),
          write_(write),
          values_(values) {
        peer = write.peer;
    }

  private:
    void add_payload(std::vector<iovec>& pieces) override;

    const NodeWrite& write_;
    std::span<const Value> values_;
};

class ReadTransfer final : public Transfer {
  public:
    ReadTransfer(Ticket of_ticket, std::shared_ptr<net::ConnectionPool> from, const NodeRead& read,
                 std::span<const Target> targets, Views* views = nullptr)
        : Transfer(Kind::kRead, of_ticket, std::move(from), read.bytes, read.deadline_ms),
          read_(read),
          targets_(targets),
          views_(views),
          assembly_(read.parts),
          received_(read.checksums ? net::ClientSocket::Received([this](std::size_t n) { on_received(n); })
                                   : net::ClientSocket::Received()) {
        peer = read.peer;
        for (std::size_t i = 0; i < read.parts.size(); ++i) {
            assembly_.answers()[i].checksum = read.parts[i].checksum_seed;
        }
    }
    std::vector<PartAnswer>& answers();
    bool expects_frame() const override { return state == State::kReceiving && !in_payload_; }

  private:
    bool replace_frame(wire::Buffer& frames) override;
    net::IoResult sent() override;
    net::IoResult on_opened(const wire::FrameHeader& header, wire::Bytes body);
    void ask_for_bytes();
    // What the frames of bytes are of.
    std::span<const ReadPart> parts() const {
        return mapped_ ? std::span<const ReadPart>(parts_left_) : std::span<const ReadPart>(read_.parts);
    }
    net::IoResult receive(std::uint64_t wait_until_ms) override;
    net::IoResult on_head(const wire::FrameHeader& header, wire::Bytes head);
    void on_received(std::size_t bytes);

    const NodeRead& read_;
    // Where a part's value goes.
    std::uint8_t* target(const ReadPart& part) {
        return views_ != nullptr ? views_->room(part.index) : targets_[part.index].data;
    }

    std::span<const Target> targets_;
    Views* const views_;                  // instead of targets_
    std::unique_ptr<MappedRead> mapped_;  // where the connection's memory is mapped, and it suits
    bool is_opening_ = false;             // what comes next is the answer to its question
    bool is_over_ = false;                // only what it gives back is still to be sent
    wire::Buffer frames_;
    std::vector<ReadPart> parts_left_;  // those of mapped_->left()
    ReadAssembly assembly_;
    bool in_payload_ = false;
    bool has_more_ = false;
    std::vector<wire::Verdict> verdicts_;
    std::vector<iovec> ranges_;
    std::span<iovec> unreceived_;
    const net::ClientSocket::Received received_;  // empty: nothing is computed of the bytes
    std::size_t range_ = 0;                       // of the frame: the one whose bytes come next,
    std::uint64_t range_bytes_ = 0;               // and how much of it and its verdict is here
};

}  // namespace mooncake::client
