#include "transfer/peers.h"

#include "net/event_loop.h"

namespace mooncake::transfer {

bool Peer::recognise(const wire::Uuid& process) {
    const std::lock_guard lock(mutex_);
    if (!process_) process_ = process;
    return *process_ == process;
}

void Peer::forget() {
    const std::lock_guard lock(mutex_);
    process_.reset();
}

std::shared_ptr<Peer> Peers::find(const net::Endpoint& endpoint) {
    const std::lock_guard lock(mutex_);
    auto& peer = peers_[net::to_text(endpoint)];
    if (!peer) {
        peer = std::make_shared<Peer>(endpoint, connections_max_);
        // New ones are rare: the time to look what the old ones still hold.
        const auto now = net::monotonic_ms();
        const auto mine = peer;
        for (const auto& known : peers_) known.second->pool().close_old(now);
        if (peers_.size() > kPeersMax) {
            std::erase_if(peers_, [&](const auto& known) {
                return known.second != mine && known.second.use_count() == 1;
            });
        }
        return mine;
    }
    return peer;
}

void Peers::close_idle() {
    const std::lock_guard lock(mutex_);
    for (const auto& known : peers_) known.second->pool().close_idle();
}

}  // namespace mooncake::transfer
