// A transfer engine: memory that other engines may read and write, and reads and writes of theirs.
//
// Any number of threads may call at once. Knows nothing of the store, of masters, or of how engines find each
// other: a peer is an endpoint.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/call_queue.h"
#include "net/connection.h"
#include "transfer/call.h"
#include "transfer/server.h"

namespace mooncake::transfer {

// Batches that wait for one of the threads; beyond it a further one is refused.
inline constexpr std::size_t kBatchesWaitingMax = 4'096;
// Outcomes remembered; beyond it the oldest is forgotten.
inline constexpr std::size_t kOutcomesMax = 65'536;

struct EngineOptions {
    std::string host = "0.0.0.0";
    std::uint16_t port = 0;
    std::string software;
    std::size_t threads = 2;        // that serve others
    std::size_t batch_threads = 4;  // that carry out batches which nobody waits for
    std::size_t connections_max = 1'024;
    std::size_t connections_a_peer_max = 8;
    std::uint64_t connect_timeout_ms = 1'000;
    // Of a call, and a second more for each kBytesASecondMin of it.
    std::uint64_t transfer_timeout_ms = 30'000;
    std::uint64_t stall_timeout_ms = 10'000;
};
inline constexpr std::uint64_t kBytesASecondMin = 64u << 20;

enum class Direction : std::uint8_t { kRead, kWrite };

enum class Outcome : std::uint8_t { kUnknown, kPending, kDone, kFailed, kLate };

using GivenUp = std::function<bool()>;

class Engine {
  public:
    using BatchId = std::uint64_t;

    // Listens. Throws std::system_error, naming host and port, when it cannot.
    explicit Engine(EngineOptions options);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    // Nobody is served any more, and calls that run end soon. Idempotent; not from a thread of ours.
    void stop();
    bool is_stopped() const { return is_stopped_.load(std::memory_order_relaxed) || is_forked(); }
    std::uint16_t port() const { return port_; }

    // As Registry's.
    wire::Status add(wire::MemoryRange range, std::string& why);
    wire::Status withdraw(std::uint64_t address, std::string& why);
    // Zeroed memory that is registered until give_back; 0: there is none, or `why`.
    std::uint64_t lend(std::uint64_t length, std::string& why);
    wire::Status give_back(std::uint64_t address, std::string& why);

    // Waits until it is over. notice: told the peer after the last byte.
    CallResult transfer(const net::Endpoint& peer, Direction direction, std::span<const Item> items,
                        const std::optional<ReceivedNotice>& notice, const GivenUp& given_up);
    // Carried out by a thread of ours: the memory must stay until its outcome is known. 0: it was not taken,
    // and `result` says why. Reaches the peer first, as a dial that fails is better told now.
    BatchId submit(const net::Endpoint& peer, Direction direction, std::vector<Item> items,
                   const GivenUp& given_up, CallResult& result);
    Outcome outcome(BatchId batch, std::string& why);
    // Until none of them is pending, or given_up says so (asked every kLookUpMs).
    void wait(std::span<const BatchId> batches, const GivenUp& given_up);

    std::vector<ReceivedNotice> take_notices() { return served_->notices.take(); }
    CallResult first_buffer(const net::Endpoint& peer, const GivenUp& given_up, wire::MemoryRange& range);
    CallResult ping(const net::Endpoint& peer, const GivenUp& given_up);
    std::vector<std::pair<std::string, std::uint64_t>> stats() const;

  private:
    class Batch;
    struct Outcomes;
    struct Free {
        void operator()(std::uint8_t* memory) const;
    };

    bool is_forked() const { return ::getpid() != process_id_; }
    bool refuses(CallResult& result) const;
    net::Patience patience(std::uint64_t bytes, GivenUp given_up) const;
    CallResult question(const net::Endpoint& peer, wire::Verb verb, const GivenUp& given_up,
                        wire::Buffer& answer);

    const EngineOptions options_;
    const pid_t process_id_ = ::getpid();
    const std::shared_ptr<Served> served_;
    CallSettings settings_;
    std::atomic<bool> is_stopped_ = false;

    std::mutex lent_mutex_;  // guards what follows
    std::map<std::uint64_t, std::unique_ptr<std::uint8_t, Free>> lent_;

    std::unique_ptr<Peers> peers_;
    std::unique_ptr<Outcomes> outcomes_;
    std::unique_ptr<net::CallQueue> batches_;
    std::unique_ptr<net::LoopThreads> loops_;
    std::unique_ptr<net::Server> server_;
    std::uint16_t port_ = 0;
};

}  // namespace mooncake::transfer
