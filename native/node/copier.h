// Fetches replicas from other nodes' data ports and seals them here: what the master's copy command asks for.
//
// Owns a few threads, started with the first task, and their connections. A read like any client's, straight
// into the range; its checksum is always compared before the seal. Must not know the master (control_state.h
// answers it) nor what a range is (node/core/directory.h).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/client_socket.h"
#include "node/holdings.h"
#include "wire/control.h"

namespace mooncake::node {

struct CopyTask {
    wire::ReplicaId target = 0;
    wire::SegmentId segment = 0;
    wire::ReplicaId source = 0;
    std::uint64_t digest = 0;
    wire::PutId put_id = 0;
    std::uint64_t size = 0;
    std::uint64_t epoch = 0;        // of the command
    std::uint64_t deadline_ms = 0;  // net::monotonic_ms
    std::vector<std::string> endpoints;
};
// OK: it is here, whole. Called once, on any thread.
using CopyDone = std::function<void(wire::Status)>;

struct CopierOptions {
    std::size_t threads = 2;          // each fetches one value at a time
    std::size_t tasks_max = 256;      // that wait; beyond it BUSY
    std::size_t connections_max = 8;  // that a thread keeps
    std::uint64_t connect_timeout_ms = 1'000;
    std::string software = "mooncake-store";
};

class Copier {
  public:
    Copier(std::shared_ptr<Holdings> holdings, CopierOptions options);
    ~Copier();
    Copier(const Copier&) = delete;
    Copier& operator=(const Copier&) = delete;

    void fetch(CopyTask task, CopyDone done);
    // Gives up what is under way (CLOSED) and joins the threads; idempotent.
    void stop();
    std::vector<std::pair<std::string, std::uint64_t>> stats() const;

  private:
    using Connections = std::map<std::string, std::unique_ptr<net::ClientSocket>>;
    struct Job {
        CopyTask task;
        CopyDone done;
    };

    void run();
    wire::Status carry_out(const CopyTask& task, Connections& connections);
    wire::Status fetch_from(const std::string& endpoint, const CopyTask& task, Connections& connections);
    std::unique_ptr<net::ClientSocket> take_connection(const std::string& endpoint, const CopyTask& task,
                                                       Connections& connections, wire::Status& status);
    bool is_stopping();

    const std::shared_ptr<Holdings> holdings_;
    const CopierOptions options_;
    const wire::Uuid process_;

    mutable std::mutex mutex_;  // guards what follows; nothing is called under it
    std::condition_variable changed_;
    std::deque<Job> jobs_;
    std::vector<std::thread> threads_;
    bool is_stopped_ = false;
    std::uint64_t copied_values_ = 0;
    std::uint64_t copied_bytes_ = 0;
    std::uint64_t failed_values_ = 0;
    std::uint64_t checksum_mismatches_ = 0;
};

}  // namespace mooncake::node
