// Dials nodes that clients report unreachable, to see for itself: one hello to the data endpoint, one second
// for all of it.
//
// Owns one event loop of its own, started with the first probe, so that neither the lane nor the clock's
// thread ever waits for a dead node. How many probes there are, and what comes of them, is decided in
// native/metadata/suspects.cc.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "metadata/suspects.h"
#include "net/event_loop.h"
#include "wire/ids.h"

namespace mooncake::master {

inline constexpr std::uint64_t kProbeTimeoutMs = 1'000;

class Prober {
  public:
    // Called once a probe, on the prober's thread or, after stop(), on the asking one.
    using Ended = std::function<void(wire::SessionId node, metadata::ProbeResult result)>;

    Prober(std::string software, const wire::Uuid& process, Ended ended);
    ~Prober();
    // Any thread; does not wait.
    void probe(wire::SessionId node, const std::string& endpoint);
    void stop();  // idempotent

  private:
    const std::string software_;
    const wire::Uuid process_;
    const Ended ended_;
    std::mutex mutex_;  // guards what follows
    std::unique_ptr<net::LoopThreads> loops_;
    bool is_stopped_ = false;
};

}  // namespace mooncake::master
