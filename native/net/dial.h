// Opens a TCP connection for a caller that waits, within a deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

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
// Resolves the host and tries its addresses in turn.
Dialled dial(const Endpoint& endpoint, const Patience& patience);

}  // namespace mooncake::net
