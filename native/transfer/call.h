// One call to another engine: a batch of reads or writes over a few connections at once, or one question.
//
// It runs on its caller's thread and returns only when nothing reads or writes the caller's memory any more.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/dial.h"
#include "transfer/exchange.h"
#include "transfer/peers.h"

namespace mooncake::transfer {

// Connections that one call uses at a time.
inline constexpr std::size_t kStreamsMax = 2;

struct CallSettings {
    wire::Hello hello;  // with which this engine introduces itself
    std::uint64_t connect_timeout_ms = 1'000;
    // A call ends when nothing of it moved for so long.
    std::uint64_t stall_timeout_ms = 10'000;
};

struct CallResult {
    wire::Status status = wire::Status::kOk;
    std::string why;

    bool is_late() const { return status == wire::Status::kDeadline; }
};

class Call {
  public:
    // patience.given_up is asked every kLookUpMs; from then on it must say true.
    Call(std::shared_ptr<Peer> peer, const CallSettings& settings, net::Patience patience)
        : peer_(std::move(peer)), settings_(settings), patience_(std::move(patience)) {}
    ~Call();  // closes what is not complete
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // verb: kTransferRead or kTransferWrite.
    CallResult transfer(wire::Verb verb, Plan& plan);
    // The answer's body is in `answer`.
    CallResult ask(wire::Verb verb, wire::Bytes body, wire::Buffer& answer);
    // There is a connection with it, now.
    CallResult reach();

  private:
    struct Stream {
        std::unique_ptr<Exchange> exchange;  // none: it has nothing to do any more
        bool is_reused = false;              // its connection may have ended unnoticed
        std::uint64_t progress_ms = 0;
    };
    using Failure = std::optional<CallResult>;  // empty: go on

    CallResult run_alone(Exchange& exchange);
    CallResult run_streams(wire::Verb verb, Plan& plan, Portion first);
    void open_streams(wire::Verb verb, Plan& plan);
    Failure advance(Stream& stream, wire::Verb verb, Plan& plan);
    Failure repeat(Stream& stream);
    Failure poll_streams();

    // A connection of the pool's, or a new one. may_wait: for one that others use; else there may be none.
    Failure connect(bool fresh, bool may_wait, std::unique_ptr<net::ClientSocket>& socket, bool& is_reused);
    std::unique_ptr<net::ClientSocket> dial(CallResult& failure);
    Failure look_up();
    CallResult ended(net::IoResult result, std::string why);
    CallResult failed(wire::Status status, std::string why);
    void give_back(std::unique_ptr<net::ClientSocket> socket);

    const std::shared_ptr<Peer> peer_;
    const CallSettings& settings_;
    const net::Patience patience_;
    std::optional<wire::Uuid> process_;  // behind the connections of this call
    std::vector<Stream> streams_;
    std::vector<pollfd> polled_;
    std::uint64_t looked_up_ms_ = 0;
};

}  // namespace mooncake::transfer
