// Listens to the frames between clients and nodes: what a node has confirmed to be retired is served to no
// reader and taken from no writer who asks afterwards. And the journal is told who read and wrote which
// replica.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "journal.h"
#include "kernel.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace simulation {

class DataWatch {
  public:
    DataWatch(std::uint16_t data_port, Journal& journal) : data_port_(data_port), journal_(journal) {}

    void sent(const Socket& from, std::span<const std::uint8_t> bytes);
    // A node says that nobody is served these any more.
    void retired(std::span<const mooncake::wire::ReplicaId> replicas);

  private:
    struct Request {
        std::vector<mooncake::wire::ReplicaId> replicas;
        std::vector<std::string> keys;  // of a write, while lines are kept
        std::set<mooncake::wire::ReplicaId> retired_before;
    };
    struct Expected {  // of a payload
        std::uint64_t skipped = 0;
        bool has_verdict = false;  // after those bytes
        bool is_last = false;
        std::uint64_t request_id = 0;
        std::uint32_t item = 0;
    };
    struct Direction {
        mooncake::wire::Buffer partial;
        std::deque<Expected> payload;
        std::uint64_t over = 0;  // request whose answer ends with this payload; 0 = none
    };
    struct Connection {
        std::array<Direction, 2> directions;
        std::map<std::uint64_t, Request> requests;
    };
    // How many of the bytes were used; 0 = more are needed.
    std::size_t take_payload(const Socket& from, Connection& connection, Direction& direction,
                             std::span<const std::uint8_t> bytes);
    std::size_t take_frame(const Socket& from, Connection& connection, Direction& direction,
                           std::span<const std::uint8_t> bytes);
    void asked(const Socket& from, Connection& connection, Direction& direction,
               const mooncake::wire::FrameHeader& header, mooncake::wire::Bytes body);
    void answered(const Socket& from, Connection& connection, Direction& direction,
                  const mooncake::wire::FrameHeader& header, mooncake::wire::Bytes body);
    void served(const Socket& from, const Request& request, std::size_t item, mooncake::wire::Status status,
                const char* what);

    const std::uint16_t data_port_;
    Journal& journal_;
    std::map<std::uint64_t, Connection> connections_;
    std::set<mooncake::wire::ReplicaId> retired_;
    std::map<mooncake::wire::ReplicaId, std::string> keys_;  // while lines are kept
};

}  // namespace simulation
