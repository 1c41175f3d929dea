// Connections to one peer (or to the lane), reused: how many there may be, and how many bytes of payload may
// be on their way to and from it at once.
//
// A call owns what it took until it gives it back; a connection whose reply is not complete is dropped, which
// closes it, never given back.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "net/client_socket.h"

namespace mooncake::net {

inline constexpr std::uint64_t kIdleMaxMs = 60'000;  // a connection that is not used is closed after this
// One that was used so recently is given as it is: asking the kernel first whether its peer has closed it
// would cost every request a system call, and a user who finds it closed asks again on a new one all the
// same.
inline constexpr std::uint64_t kTrustedMs = 1'000;

class ConnectionPool {
  public:
    // trusted_ms = 0: each is looked at, for users to whom it matters which process answers.
    ConnectionPool(std::size_t connections_max, std::uint64_t bytes_max,
                   std::uint64_t trusted_ms = kTrustedMs)
        : connections_max_(connections_max), bytes_max_(bytes_max), trusted_ms_(trusted_ms) {}

    enum class Taken : std::uint8_t {
        kConnection,  // one that was used before
        kSlot,        // room for a new one: dial, then give_back or drop
        kFull,        // neither now; wait() and ask again
    };
    // fresh: a new connection, because older ones may have ended unnoticed (idle ones are closed).
    // One transfer larger than bytes_max passes when it is alone.
    Taken take(bool fresh, std::uint64_t bytes, std::unique_ptr<ClientSocket>& socket);
    void give_back(std::unique_ptr<ClientSocket> socket, std::uint64_t bytes);
    void drop(std::uint64_t bytes);  // its connection is closed, or never came to be
    void close_idle();
    // Those whose peer closed them, and those that nobody used for kIdleMaxMs.
    void close_old(std::uint64_t now_ms);

    // Until something was given back or dropped, at most wait_ms.
    void wait(std::uint64_t wait_ms);

  private:
    const std::size_t connections_max_;
    const std::uint64_t bytes_max_;
    const std::uint64_t trusted_ms_;
    std::mutex mutex_;  // innermost: nothing else is locked under it
    std::condition_variable returned_;
    struct Idle {
        std::unique_ptr<ClientSocket> socket;
        std::uint64_t since_ms = 0;
    };
    std::vector<Idle> idle_;  // the last one used at the end
    std::size_t in_use_ = 0;
    std::uint64_t bytes_in_flight_ = 0;
};

}  // namespace mooncake::net
