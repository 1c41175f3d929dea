// Two masters may run by mistake: a copied state file, an address that moved, a process that woke. A node
// that is mounted at one of them looks at the other addresses of its list now and then. One that it followed
// before is told whom it follows now; if that reign is later it steps down (Metadata::hear_of_reign), and its
// clients and nodes go on here. A master that this node never followed is told nothing: the list of a node of
// another pool, with a wrong address in it, must not end a healthy reign.
//
// Owns one thread, started when the list has more than one address. Knows no session and no segment.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "net/discover.h"
#include "net/endpoint.h"

namespace mooncake::node {

// All other masters are told so often, and at least three times a client_ttl, which is how long one that was
// told keeps still.
inline constexpr std::uint64_t kTellReignMs = 3'000;
// A node that is mounted nowhere looks so often whether it is.
inline constexpr std::uint64_t kLookMountedMs = 500;

class ReignWatch {
  public:
    struct Followed {
        net::Reign reign;  // epoch 0: mounted nowhere, nothing is told
        std::uint64_t client_ttl_ms = 0;
        std::vector<wire::Uuid> before;  // masters that were followed earlier
    };
    // `followed` is asked on the watch's thread.
    ReignWatch(std::vector<net::Endpoint> masters, std::uint64_t connect_timeout_ms,
               std::function<Followed()> followed);
    ~ReignWatch();
    void start();
    void stop();  // idempotent; waits for at most one look at a socket

  private:
    void run();
    void tell(const net::Endpoint& master, const Followed& followed);
    bool is_stopped();

    const std::vector<net::Endpoint> masters_;
    const std::uint64_t connect_timeout_ms_;
    const std::function<Followed()> followed_;
    std::mutex mutex_;  // guards is_stopped_
    std::condition_variable stopped_;
    bool is_stopped_ = false;
    std::thread thread_;
};

}  // namespace mooncake::node
