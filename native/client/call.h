// Runs one operation on the calling thread: carries its actions out over several connections at once, with
// one poll loop, and tells it what became of them.
//
// Returns when the operation is done. Every connection whose reply was not complete by then is closed before
// run() returns, so the caller's memory is not touched afterwards.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "client/core/operation.h"
#include "client/driver.h"
#include "client/transfer.h"

namespace mooncake::client {

class Call {
  public:
    // interrupted: asked at least every kWakeMs while waiting, on this thread; true ends the call. May be
    // empty.
    Call(Driver& driver, Operation& operation, const std::function<bool()>& interrupted)
        : driver_(driver), operation_(operation), interrupted_(interrupted) {}

    void set_values(std::span<const Value> values) { values_ = values; }
    void set_targets(std::span<const Target> targets) { targets_ = targets; }
    // Values are looked at where they lie, or else are put there; targets tell their sizes.
    void set_views(Views& views) { views_ = &views; }

    // `begin` starts the operation (or goes on with one).
    void run(const std::function<void(std::uint64_t now_ms, Actions& actions)>& begin);
    void run() {
        run([this](std::uint64_t now_ms, Actions& actions) { operation_.start(now_ms, actions); });
    }
    bool was_interrupted() const { return was_interrupted_; }

  private:
    void carry_out(std::uint64_t now_ms, Actions& actions);
    void start_queued(std::uint64_t now_ms, Actions& actions);
    // false: no connection to be had now.
    bool try_start(Transfer& transfer, std::uint64_t now_ms, Actions& actions);
    void advance(Transfer& transfer, std::uint64_t now_ms, Actions& actions);
    void advance_dial(Transfer& transfer, std::uint64_t now_ms, Actions& actions);
    void dial_by_tcp(Transfer& transfer, std::uint64_t now_ms, Actions& actions);
    std::unique_ptr<net::ClientDial> dial_master(std::uint64_t now_ms, std::uint64_t deadline_ms,
                                                 std::string& why);
    // Only a connection made for this transfer proves anything when it breaks.
    void set_fresh(const Transfer& transfer);
    void settle(Transfer& transfer, net::IoResult result, std::uint64_t now_ms, Actions& actions);
    void complete(Transfer& transfer, std::uint64_t now_ms, Actions& actions);
    void master_failed(std::string& why, std::uint64_t now_ms);
    void fail(Transfer& transfer, Failure failure, const std::string& why, std::uint64_t now_ms,
              Actions& actions);
    void wait(std::uint64_t now_ms, Actions& actions);
    void poll(std::uint64_t wait_ms, Actions& actions);
    void look_up(std::uint64_t now_ms, Actions& actions);
    bool is_given_up();
    void report_silent(std::uint64_t now_ms);
    wire::Buffer& frame_of(const Transfer& transfer);

    Driver& driver_;
    Operation& operation_;
    const std::function<bool()>& interrupted_;
    std::span<const Value> values_;
    std::span<const Target> targets_;
    Views* views_ = nullptr;

    std::vector<std::unique_ptr<Transfer>> transfers_;
    std::vector<pollfd> polled_;
    std::vector<Transfer*> polled_transfers_;
    bool waits_for_session_ = false;
    bool was_interrupted_ = false;
    std::uint64_t session_generation_ = 0;
    std::uint64_t last_attempt_ = 0;  // of the keeper's that this call waits for; 0: it waits its whole time
    std::uint64_t looked_up_ms_ = 0;
};

}  // namespace mooncake::client
