// A node as the master sees it, without memory behind it: lends bytes, carries out retires at once, reports.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "peer.h"

namespace mooncake::bench {

// Many nodes of one segment each, on one thread: their reports each second, their answers to commands.
class Nodes {
  public:
    Nodes(const Target& target, std::size_t count, std::uint64_t segment_bytes);
    ~Nodes();

  private:
    struct Node {
        std::unique_ptr<Peer> peer;
        wire::SegmentId segment = 0;
        std::uint64_t last_command_id = 0;
        std::vector<wire::ReplicaId> held_back;
    };
    void run();
    void report(Node& node);
    static void answer(Node& node, const wire::FrameHeader& header, wire::Bytes body);

    std::vector<Node> nodes_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

// A node that comes to a master which does not know it, with `count` sealed values of an earlier reign: tells
// them all, and answers the ns from the mount until the last was taken in.
std::uint64_t tell_inventory(const Target& target, std::uint64_t count);

}  // namespace mooncake::bench
