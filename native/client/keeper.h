// The thread that keeps a client's place in the cluster, so that no caller waits for it: finds the master and
// opens the session (again), heartbeats, tells the master which leases are over and which puts were given up,
// has peers probed that did not answer, and forgets those that left.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "client/driver.h"
#include "net/client_socket.h"
#include "net/prober.h"

namespace mooncake::client {

class Keeper {
  public:
    explicit Keeper(Driver& driver);
    ~Keeper();
    Keeper(const Keeper&) = delete;
    Keeper& operator=(const Keeper&) = delete;

    // The first connection, on the caller's thread. false: `why` names addresses and setting.
    bool connect(const net::Patience& patience, std::string& why, wire::Status& status);
    void start();
    void poke();  // something may be due now
    void stop();  // idempotent; says goodbye to the master if it answers

    bool is_connected();
    std::string why_not_connected();

  private:
    void run();
    void round(std::uint64_t now_ms);
    std::uint64_t next_due(std::uint64_t now_ms);
    bool find_master(const net::Patience& patience, std::string& why, wire::Status& status);
    bool reach_master(net::Patience& patience, std::string& why, wire::Status& status);
    bool open_session(const net::Patience& patience, std::string& why, wire::Status& status);
    void reconnect();
    void try_lane_again(std::uint64_t now_ms);
    void heartbeat(std::uint64_t now_ms);
    void flush(std::uint64_t now_ms);
    void flush_releases(const net::Patience& patience);
    void flush_revokes();
    void flush_accesses();
    void probe_ended(PeerId peer, net::ProbeResult result);
    void start_probes(std::uint64_t now_ms);
    void check_segments(std::uint64_t now_ms);
    bool must_stop();

    // One request on the control connection; false: no sound answer, the connection is closed.
    bool ask(wire::Buffer& frame, wire::FrameHeader& header, wire::Bytes& body,
             const net::Patience& patience);
    // On the keeper's thread: for so long, or until stop().
    net::Patience patience(std::uint64_t wait_ms);
    wire::Buffer begin(wire::Verb verb, bool mutating, wire::Prefix& prefix);
    void disconnect(const std::string& why, bool is_silent = false);

    Driver& driver_;
    net::Prober prober_;
    std::unique_ptr<net::ClientSocket> socket_;  // the keeper's thread only, after start()
    std::uint64_t heartbeat_at_ms_ = 0;
    std::uint64_t reconnect_at_ms_ = 0;
    std::uint64_t reconnect_delay_ms_ = 0;
    std::uint64_t tried_at_ms_ = 0;
    std::uint64_t lane_again_at_ms_ = 0;  // while gRPC stands in for the lane

    std::mutex mutex_;  // guards what follows; nothing else is locked under it
    std::condition_variable poked_;
    bool is_poked_ = false;
    bool is_stopping_ = false;
    bool is_connected_ = false;
    std::string why_;
    std::thread thread_;
};

}  // namespace mooncake::client
