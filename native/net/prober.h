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

struct ProbeAnswer {
    ProbeResult result = ProbeResult::kFailed;
    std::string why;       // what went wrong, naming the address
    wire::Uuid process{};  // of whoever welcomed
};

class Prober {
  public:
    // Called once a probe: on the prober's thread or, of what is no endpoint and after stop(), within
    // probe().
    using Ended = std::function<void(const ProbeAnswer&)>;

    // `hello` is what it introduces itself with.
    explicit Prober(const wire::Hello& hello);
    ~Prober();
    // Any thread; does not wait.
    void probe(const std::string& endpoint, Ended ended);
    void stop();  // idempotent

  private:
    const wire::Buffer hello_frame_;
    std::mutex mutex_;  // guards what follows
    std::unique_ptr<LoopThreads> loops_;
    bool is_stopped_ = false;
};

}  // namespace mooncake::net
