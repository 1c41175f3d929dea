#include "node/reign_watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "net/signals_blocked.h"

namespace mooncake::node {

ReignWatch::ReignWatch(std::vector<net::Endpoint> masters, std::uint64_t connect_timeout_ms,
                       std::function<Followed()> followed)
    : masters_(std::move(masters)), connect_timeout_ms_(connect_timeout_ms), followed_(std::move(followed)) {}

ReignWatch::~ReignWatch() { stop(); }

void ReignWatch::start() {
    if (masters_.size() < 2) return;
    const net::SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "mc-reigns");
}

void ReignWatch::stop() {
    {
        const std::lock_guard guard(mutex_);
        is_stopped_ = true;
    }
    stopped_.notify_all();
    if (thread_.joinable()) thread_.join();
}

bool ReignWatch::is_stopped() {
    const std::lock_guard guard(mutex_);
    return is_stopped_;
}

void ReignWatch::run() {
    std::uint64_t wait_ms = kLookMountedMs;
    for (;;) {
        {
            std::unique_lock guard(mutex_);
            stopped_.wait_for(guard, std::chrono::milliseconds(wait_ms), [&] { return is_stopped_; });
            if (is_stopped_) return;
        }
        const Followed followed = followed_();
        wait_ms = kLookMountedMs;
        if (followed.reign.epoch == 0) continue;
        wait_ms = std::clamp<std::uint64_t>(followed.client_ttl_ms / 3, 1, kTellReignMs);
        if (followed.before.empty()) continue;
        for (const auto& master : masters_) tell(master, followed);
    }
}

// One that stepped down is told on: else it would serve again.
void ReignWatch::tell(const net::Endpoint& master, const Followed& followed) {
    const auto given_up = [this] { return is_stopped(); };
    const auto met = net::discover(master, connect_timeout_ms_, given_up);
    if (!met.found && !met.is_deposed) return;
    if (std::find(followed.before.begin(), followed.before.end(), met.master) == followed.before.end()) {
        return;
    }
    net::discover(master, connect_timeout_ms_, given_up, followed.reign);
}

}  // namespace mooncake::node
