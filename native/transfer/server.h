// The side of a transfer engine that is asked: serves reads and writes of registered memory to peers, and
// takes their notices.
//
// Its threads alone move these bytes, straight from and into the memory; none of them is Python's. What is
// not wholly registered is refused before a byte of it is touched.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "net/connection.h"
#include "transfer/registry.h"
#include "wire/frame.h"

namespace mooncake::transfer {

// Notices that nobody has taken yet; beyond either bound the next one is answered BUSY.
inline constexpr std::size_t kNoticesMax = 16'384;
inline constexpr std::size_t kNoticesBytesMax = 64u << 20;
// Reads of one connection that wait to be sent; beyond it BUSY. An engine's own client asks for one at a
// time.
inline constexpr std::size_t kReadsWaitingMax = 64;

struct ReceivedNotice {
    std::string name;
    std::string message;
};

class Notices {
  public:
    bool add(const wire::Notice& notice);  // false: full
    std::vector<ReceivedNotice> take();

  private:
    std::mutex mutex_;  // guards what follows
    std::vector<ReceivedNotice> waiting_;
    std::size_t bytes_ = 0;
};

struct ServerCounters {
    std::atomic<std::uint64_t> read_bytes_total = 0;
    std::atomic<std::uint64_t> written_bytes_total = 0;
    std::atomic<std::uint64_t> refused_total = 0;    // of memory that is not registered
    std::atomic<std::uint64_t> malformed_total = 0;  // connections ended for what they sent
};

// What the connections share.
struct Served {
    std::shared_ptr<Registry> registry = std::make_shared<Registry>();
    Notices notices;
    ServerCounters counters;
    wire::Uuid process{};
    std::string software;
};

// One connection's handler, for the server below and for tests that feed it frames without sockets.
std::unique_ptr<net::ConnectionHandler> engine_connection(std::shared_ptr<Served> served);

// The server's limits on a peer.
net::ConnectionLimits engine_limits();

}  // namespace mooncake::transfer
