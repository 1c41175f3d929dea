// Opens a TCP connection within a deadline, for a caller that waits or for one that polls.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/address.h"
#include "net/endpoint.h"
#include "net/file_descriptor.h"

namespace mooncake::net {

inline constexpr std::uint64_t kLookUpMs = 50;

// How long a caller waits: until deadline_ms on monotonic_ms(), or until given_up, asked on the waiting
// thread every kLookUpMs and after a signal, says true; from then on it must. An empty one never does.
struct Patience {
    Patience(std::uint64_t until_ms) : deadline_ms(until_ms) {}
    Patience(std::uint64_t until_ms, std::function<bool()> until)
        : deadline_ms(until_ms), given_up(std::move(until)) {}

    bool is_given_up() const { return given_up && given_up(); }

    std::uint64_t deadline_ms;
    std::function<bool()> given_up;
};

// Waits until fd has one of `events` or is broken: true; false at the end of patience.
bool wait_for(int fd, short events, const Patience& patience);

struct Dialled {
    FileDescriptor fd;       // non-blocking; empty on failure
    bool timed_out = false;  // the failure was the end of patience
    std::string why;         // names each address tried and what happened
};

// Resolves the host and tries its addresses in turn, without waiting.
class Dialling {
  public:
    Dialling(const Endpoint& endpoint, std::uint64_t deadline_ms)
        : endpoint_(endpoint), deadline_ms_(deadline_ms), resolution_(Resolution::start(endpoint)) {}

    // As far as it goes now. False: poll fd() for events(), until due_ms() at most, and call again.
    bool advance();
    int fd() const { return socket_ ? socket_.get() : resolution_->fd(); }
    short events() const;
    std::uint64_t due_ms() const { return socket_ ? step_until_ms_ : deadline_ms_; }
    // Once it is over.
    Dialled take() { return std::move(result_); }
    void give_up() { fail_now(ETIMEDOUT); }

  private:
    bool try_next();
    void note(int error);
    void fail_now(int error);

    const Endpoint endpoint_;
    const std::uint64_t deadline_ms_;
    const std::shared_ptr<Resolution> resolution_;
    std::vector<Address> addresses_;
    std::size_t next_ = 0;
    bool is_resolved_ = false;
    FileDescriptor socket_;
    std::uint64_t step_until_ms_ = 0;  // of the address that is tried
    Dialled result_;
};

// The same for a caller that waits.
Dialled dial(const Endpoint& endpoint, const Patience& patience);

}  // namespace mooncake::net
