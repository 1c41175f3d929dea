// Listens to the frames between clients and master: tells the history what they mean and the journal what was
// asked and answered. Sees each byte when its sender hands it to the network, whether or not it arrives.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "history.h"
#include "journal.h"
#include "kernel.h"
#include "wire/frame.h"
#include "wire/lane.h"

namespace simulation {

class LaneWatch {
  public:
    LaneWatch(std::uint16_t lane_port, Ms client_ttl_ms, History& history, Journal& journal)
        : lane_port_(lane_port), client_ttl_ms_(client_ttl_ms), history_(history), journal_(journal) {}

    // `repeat` is given each whole request of a client with the hello that its connection began with.
    using Repeat = std::function<void(const Socket& from, const mooncake::wire::Buffer& hello,
                                      const mooncake::wire::Buffer& frame)>;
    void on_request(Repeat repeat) { repeat_ = std::move(repeat); }
    // A node confirms that these are served to nobody any more.
    std::function<void(std::span<const mooncake::wire::ReplicaId>)> on_retired;
    void sent(const Socket& from, std::span<const std::uint8_t> bytes);

    // Answers by verb and status, of single keys where a verb has them.
    std::map<std::pair<mooncake::wire::Verb, mooncake::wire::Status>, std::uint64_t> answers;

  private:
    struct Request {
        mooncake::wire::Verb verb = mooncake::wire::Verb::kPing;
        mooncake::wire::SessionId session = 0;  // of a client
        Ms sent_ms = 0;
        std::vector<std::string> keys;
        std::vector<std::size_t> removes;  // one a key
        std::vector<mooncake::wire::PutId> put_ids;
        History::Put put;
    };
    struct Connection {
        bool is_client = false;
        mooncake::wire::Buffer hello;
        std::array<mooncake::wire::Buffer, 2> partial;                            // by direction
        std::map<std::uint64_t, Request> requests;                                // by request_id
        std::map<std::uint64_t, std::vector<mooncake::wire::ReplicaId>> retires;  // by command_id
    };
    void frame(const Socket& from, Connection& connection, std::span<const std::uint8_t> bytes);
    void request(const Socket& from, Connection& connection, const mooncake::wire::FrameHeader& header,
                 mooncake::wire::Bytes body);
    void command(Connection& connection, const Socket& from, const mooncake::wire::FrameHeader& header,
                 mooncake::wire::Bytes body);
    void answer(const Socket& from, Connection& connection, const mooncake::wire::FrameHeader& header,
                mooncake::wire::Bytes body);
    void check_session(const Host& master, const Request& request, const mooncake::wire::FrameHeader& header);
    void on_grants(const Request& request, mooncake::wire::Bytes body, std::string& told);
    void on_statuses(const Request& request, mooncake::wire::Bytes body, std::string& told);

    const std::uint16_t lane_port_;
    const Ms client_ttl_ms_;
    History& history_;
    Journal& journal_;
    Repeat repeat_;
    std::map<std::uint64_t, Connection> connections_;
    // When a heartbeat was sent that a master of this epoch has answered OK.
    struct Heard {
        std::uint64_t epoch = 0;
        std::string master;  // two may reign in one epoch, and only one of them knows the session
        Ms sent_ms = 0;
    };
    std::map<mooncake::wire::SessionId, Heard> heard_;
    // Of a remove that was sent before: (session, sequence) to the numbers of its keys.
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::size_t>> removes_;
};

}  // namespace simulation
