// What each node still has to be told to end, and what it was told but has not confirmed.
//
// Owns the order and the repetition of retire commands: batched, at most kCommandsInFlightMax unanswered a
// node, repeated on the node's next connection until confirmed. Knows neither locks nor sockets (the driver
// calls it under the state lock and sends what next_command gives). Its memory is bounded by the replicas the
// state machine still charges on the segments: a retired replica is charged until its range is freed.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "wire/ids.h"

namespace mooncake::master {

// Ids a command: enough that a mass eviction needs few, few enough that a node answers one within
// milliseconds and that the waiting remove behind it is not kept long. Below wire::kReplicaIdsMax.
inline constexpr std::size_t kCommandIdsMax = 8192;
// One on its way while the node carries out the other; what comes up meanwhile is batched.
inline constexpr std::size_t kCommandsInFlightMax = 2;

class RetireQueues {
  public:
    struct Command {
        std::uint64_t id = 0;
        std::vector<wire::ReplicaId> replicas;
    };

    // The segment belongs to this node session from now on; again for the same pair: nothing.
    void mounted(wire::SegmentId segment, wire::SessionId owner);
    // The segment left the pool. Answers what was not confirmed yet and now never will be.
    std::vector<wire::ReplicaId> expelled(wire::SegmentId segment);
    // The node's session is gone; segments it still had are dropped like expelled ones.
    std::vector<wire::ReplicaId> session_ended(wire::SessionId owner);

    // False: the segment is not in the pool, nobody has to be told.
    bool retire(wire::SegmentId segment, wire::ReplicaId replica);
    // 0: unknown segment.
    wire::SessionId owner(wire::SegmentId segment) const;

    // The node has a new connection, or none: what was in flight is to be sent again.
    void reconnected(wire::SessionId owner);
    // The next command to send to this node, if one may be sent now.
    std::optional<Command> next_command(wire::SessionId owner, std::uint64_t now_ms);
    // The node answered a command: its ids, or nullopt if it is not in flight (late, or repeated).
    std::optional<std::vector<wire::ReplicaId>> confirmed(wire::SessionId owner, std::uint64_t command_id);
    // When the oldest unanswered command of this node was sent; nullopt: none is.
    std::optional<std::uint64_t> oldest_sent_ms(wire::SessionId owner) const;
    std::vector<wire::SessionId> owners() const;

    std::size_t length() const { return length_; }  // replicas not confirmed yet
    std::uint64_t commands_total() const { return commands_total_; }

  private:
    struct Run {  // so many of a command's ids, in order, lie on this segment
        wire::SegmentId segment = 0;
        std::size_t count = 0;
    };
    struct InFlight {
        Command command;
        std::vector<Run> runs;
        std::uint64_t sent_ms = 0;
    };
    struct Node {
        std::vector<wire::SegmentId> segments;
        std::size_t turn = 0;  // which segment the next command begins with
        std::uint64_t next_command_id = 0;
        std::deque<InFlight> in_flight;
    };
    struct Segment {
        wire::SessionId owner = 0;
        std::deque<wire::ReplicaId> pending;
    };

    void take_pending(wire::SegmentId id, InFlight& into);

    std::unordered_map<wire::SegmentId, Segment> segments_;
    std::unordered_map<wire::SessionId, Node> nodes_;
    // A node whose session was replaced may remember the last command of the old one: ids start above every
    // id given so far, and rise by one from there.
    std::uint64_t highest_command_id_ = 0;
    std::size_t length_ = 0;
    std::uint64_t commands_total_ = 0;
};

}  // namespace mooncake::master
