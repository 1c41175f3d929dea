#include "client/local_peers.h"

#include <unistd.h>

#include <utility>

#include "net/event_loop.h"
#include "net/local_socket.h"

namespace mooncake::client {

LocalPeers::LocalPeers(bool is_on) : is_on_(is_on), place_(is_on ? net::this_place() : std::string()) {}

std::string LocalPeers::refusal(const std::string& local, std::string& name) const {
    if (!is_on_) return "shared_memory is off here";
    if (local.empty()) return "the node lends no memory (its shared_memory is off, or it is older)";
    const auto parsed = net::parse_local_endpoint(local);
    if (!parsed) return "the node advertises '" + local + "', which is no Unix socket";
    if (place_.empty()) return "/proc does not tell this process's machine and network namespace";
    if (parsed->place != place_) return "the node is on another host or in another network namespace";
    if (parsed->user != ::geteuid()) {
        return "the node is of another user (uid " + std::to_string(parsed->user) +
               ") than this process (uid " + std::to_string(::geteuid()) + ")";
    }
    name = parsed->name;
    return {};
}

std::unique_ptr<net::ClientDial> LocalPeers::dial(PeerId id, const net::Endpoint& endpoint,
                                                  const std::string& local, const wire::Hello& hello,
                                                  std::uint64_t deadline_ms) {
    std::string name;
    auto why = refusal(local, name);
    const auto now_ms = net::monotonic_ms();
    std::shared_ptr<const net::SharedMemory> known;
    {
        const std::lock_guard lock(mutex_);
        Peer& peer = peers_[id];
        peer.endpoint = net::to_text(endpoint);
        // Another process listens there than the one whose memory is known.
        if (peer.local != local) peer = {peer.endpoint, local, nullptr, {}, 0};
        if (!why.empty()) {
            peer.why = std::move(why);
            return nullptr;
        }
        if (now_ms < peer.again_at_ms) return nullptr;
        known = peer.memory;
    }
    auto opened = net::dial_local(name);
    if (!opened.fd) {
        failed(id, opened.why, now_ms);
        return nullptr;
    }
    auto dial = std::make_unique<net::ClientDial>(endpoint, std::move(opened), hello, deadline_ms);
    dial->share_memory(std::move(known));
    return dial;
}

bool LocalPeers::dialled(PeerId id, const net::ClientSocket& socket) {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(id);
    if (found == peers_.end() || found->second.memory == socket.memory()) return false;
    found->second.memory = socket.memory();
    found->second.why.clear();
    return true;
}

void LocalPeers::failed(PeerId id, const std::string& why, std::uint64_t now_ms) {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(id);
    if (found == peers_.end()) return;
    found->second.memory = nullptr;
    found->second.why = "its Unix socket: " + why;
    found->second.again_at_ms = now_ms + kLocalAgainMs;
}

void LocalPeers::forget(PeerId id) {
    const std::lock_guard lock(mutex_);
    peers_.erase(id);
}

std::vector<LocalPeer> LocalPeers::list() {
    std::vector<LocalPeer> listed;
    const std::lock_guard lock(mutex_);
    for (const auto& [id, peer] : peers_) {
        const bool is_mapped = peer.memory != nullptr;
        listed.push_back({peer.endpoint, is_mapped, is_mapped ? peer.memory->bytes() : 0, peer.why});
    }
    return listed;
}

}  // namespace mooncake::client
