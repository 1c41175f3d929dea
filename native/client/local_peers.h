// Which nodes this client reaches through a Unix socket and reads by a mapping of their memory, and why it
// does not reach the others so. Whatever goes wrong leads to TCP, and is remembered.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/core/cluster.h"
#include "net/client_socket.h"

namespace mooncake::client {

// A node whose Unix socket failed is dialled by TCP for so long.
inline constexpr std::uint64_t kLocalAgainMs = 5'000;

// What a person sees of one node.
struct LocalPeer {
    std::string endpoint;  // of its data port
    bool is_mapped = false;
    std::uint64_t mapped_bytes = 0;
    std::string why;  // it is not mapped
};

class LocalPeers {
  public:
    // is_on: the setting shared_memory.
    explicit LocalPeers(bool is_on);

    // nullptr: by TCP. local: as the node advertises it.
    std::unique_ptr<net::ClientDial> dial(PeerId peer, const net::Endpoint& endpoint,
                                          const std::string& local, const wire::Hello& hello,
                                          std::uint64_t deadline_ms);
    // What became of such a dial. True: it is the first of this mapping.
    bool dialled(PeerId peer, const net::ClientSocket& socket);
    void failed(PeerId peer, const std::string& why, std::uint64_t now_ms);
    void forget(PeerId peer);

    std::vector<LocalPeer> list();

  private:
    struct Peer {
        std::string endpoint;
        std::string local;
        std::shared_ptr<const net::SharedMemory> memory;
        std::string why;
        std::uint64_t again_at_ms = 0;
    };
    // Why it is not even dialled; empty: it is.
    std::string refusal(const std::string& local, std::string& name) const;

    const bool is_on_;
    const std::string place_;
    std::mutex mutex_;  // innermost; guards what follows
    std::unordered_map<PeerId, Peer> peers_;
};

}  // namespace mooncake::client
