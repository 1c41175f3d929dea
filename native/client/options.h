// A client's settings, typed, checked once when it connects.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "net/dial.h"

namespace mooncake::client {

// The door by which the master is asked.
enum class Control : std::uint8_t {
    kAuto,  // the lane; gRPC where the master answers that and the lane cannot be reached
    kLane,
    kGrpc,  // the lane is never dialled
};

// What carries frames over gRPC, started when it is first needed. lane, master: addresses; lane_why: why the
// lane cannot be used, empty when it may not be. Gives a Unix socket for net/handover.h, whose labels are
// addresses of masters; -1 and `why` when there can be none. Called at most once, on any thread.
using StartBridge = std::function<int(const std::string& lane, const std::string& master,
                                      const std::string& lane_why, std::string& why)>;

struct Options {
    std::vector<std::string> masters;  // gRPC addresses, in the order of preference ("host:port")
    std::string lane;                  // instead of masters: the lane's own address
    std::string tenant = "default";
    std::string name;     // for people
    std::string host_id;  // where this process runs; segments with the same are preferred
    std::uint64_t connect_timeout_ms = 1'000;
    std::uint64_t rpc_timeout_ms = 10'000;
    std::uint32_t connections_a_peer_max = 8;
    std::uint64_t bytes_in_flight_a_peer_max = 256u << 20;
    std::uint32_t location_cache_max = 16'384;  // keys whose places are remembered; 0: none
    bool checksums = true;                      // computed when writing, checked when reading
    bool shared_memory = true;                  // with nodes of this host that lend it; else TCP
    Control control = Control::kAuto;
    StartBridge start_bridge;  // empty: there is only the lane
};

inline constexpr std::uint32_t kLaneConnectionsMax = 64;  // calls beyond it wait for one
inline constexpr std::uint64_t kLaneAnswerMs = 3'000;     // then the master is asked again on another
inline constexpr std::uint64_t kWakeMs =
    net::kLookUpMs;  // a blocked call looks up this often: interrupt, close
// A transfer without progress this long is given up: its peer is ill, and the engine must not wait for it.
inline constexpr std::uint64_t kStallMs = 1'500;
// A peer that was silent for so long when a call's own, shorter deadline came has failed it.
inline constexpr std::uint64_t kSilentMs = 200;

}  // namespace mooncake::client
