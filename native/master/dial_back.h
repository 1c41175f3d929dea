// Asks, before a mount is believed, whether the data endpoints that it names can be dialled and lead to its
// process: a node that nobody reaches must not join the pool, and one whose address leads elsewhere (a name
// that means the loopback interface on every host) neither.
//
// Owns the mounts that are being checked, how many at once, and the text of a refusal. Must not know: sockets
// (it is given a way to probe), the state machine, who asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "master/bounded_clock.h"
#include "wire/lane.h"
#include "wire/status.h"

namespace mooncake::master {

inline constexpr std::size_t kDialBacksMax = 64;  // mounts that are being checked at once, one probe each
inline constexpr std::size_t kDialBacksWaitingMax = 1'024;  // mounts that wait for their turn; then BUSY
// No probe begins later than this after its mount came; with the last one's second it stays below the 3 s
// that a node waits for the answer to a mount.
inline constexpr std::uint64_t kDialBackBeginMs = 1'500;

class DialBack {
  public:
    // Called once, on any thread, perhaps from inside the probe: the process that welcomed, or why none did.
    using Probed = std::function<void(const std::optional<wire::Uuid>& process, const std::string& why)>;
    using Probe = std::function<void(const std::string& endpoint, Probed)>;
    // OK: one endpoint of each segment led to it. UNREACHABLE, BUSY or CLOSED, and why. Called once, like
    // Probed.
    using Ended = std::function<void(wire::Status, const std::string& why)>;

    DialBack(Probe probe, const BoundedClock& clock);
    ~DialBack();
    DialBack(const DialBack&) = delete;
    DialBack& operator=(const DialBack&) = delete;

    // Any thread; does not wait. `mount` is not used after the return.
    void check(const wire::Mount& mount, Ended ended);
    // Those that wait are answered CLOSED, and every later one. What is being probed ends with its probe.
    void stop();

  private:
    struct Check;
    using CheckPtr = std::shared_ptr<Check>;
    void go_on(const CheckPtr& check);
    void probed(const CheckPtr& check, const std::optional<wire::Uuid>& process, const std::string& why);
    void end(const CheckPtr& check, wire::Status status, const std::string& why);

    const Probe probe_;
    const BoundedClock& clock_;
    std::mutex mutex_;  // guards what follows
    std::deque<CheckPtr> waiting_;
    std::size_t running_ = 0;
    bool is_stopped_ = false;
};

}  // namespace mooncake::master
