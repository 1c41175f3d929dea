// Opens a TCP connection for a caller that waits, within a deadline.
#pragma once

#include <cstdint>
#include <string>

#include "net/endpoint.h"
#include "net/file_descriptor.h"

namespace mooncake::net {

// Waits until fd has one of `events` or is broken: true; false at the deadline (monotonic_ms).
bool wait_for(int fd, short events, std::uint64_t deadline_ms);

struct Dialled {
    FileDescriptor fd;       // non-blocking; empty on failure
    bool timed_out = false;  // the failure was the deadline
    std::string why;         // names each address tried and what happened
};
// Resolves the host and tries its addresses in turn.
Dialled dial(const Endpoint& endpoint, std::uint64_t deadline_ms);

}  // namespace mooncake::net
