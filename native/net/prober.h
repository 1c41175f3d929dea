// Dials data endpoints in the background, to see who answers there: one hello, one second for all of it.
//
// Owns one event loop of its own, started with the first probe, so that nobody who has other things to do
// waits for a dead node. Whom to probe, how many at once, and what comes of it is its owner's business.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "net/event_loop.h"
#include "wire/frame.h"

namespace mooncake::net {

inline constexpr std::uint64_t kProbeTimeoutMs = 1'000;

enum class ProbeResult : std::uint8_t {
    kWelcomed,
    kDeclined,  // it speaks, and takes no such connection
    kRefused,   // its machine answers that nobody listens
    kFailed,    // no answer, or none that can be
};

class Prober {
  public:
    // Called once a probe, on the prober's thread or, after stop(), on the asking one.
    using Ended = std::function<void(std::uint64_t subject, ProbeResult result)>;

    // `hello` is what it introduces itself with.
    Prober(const wire::Hello& hello, Ended ended);
    ~Prober();
    // Any thread; does not wait.
    void probe(std::uint64_t subject, const std::string& endpoint);
    void stop();  // idempotent

  private:
    const wire::Buffer hello_frame_;
    const Ended ended_;
    std::mutex mutex_;  // guards what follows
    std::unique_ptr<LoopThreads> loops_;
    bool is_stopped_ = false;
};

}  // namespace mooncake::net
