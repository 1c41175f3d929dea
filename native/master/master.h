// A whole master without Python: the state machine, its driver, the lane and the clock, started and stopped
// together. What the daemon, the gRPC door and Store.embedded() build on.
//
// Owns the threads: the lane's, and one that reads the clock and lets time pass. Must not know: gRPC, HTTP,
// Python, configuration files.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "master/bounded_clock.h"
#include "master/dial_back.h"
#include "master/lane_server.h"
#include "master/state_driver.h"
#include "net/prober.h"

namespace mooncake::master {

struct MasterOptions {
    metadata::Options metadata;
    DriverOptions driver;
    std::string lane_host = "0.0.0.0";
    std::uint16_t lane_port = 0;   // 0: any free one
    std::size_t lane_threads = 0;  // 0: one for each two cores
    std::uint64_t epoch = 1;
    wire::Uuid uuid{};       // all zero: drawn at random
    std::uint64_t seed = 0;  // of placement's choices; 0: drawn at random
    std::uint64_t clock_step_max_ms = 500;
    // Nodes are mounted only when their data endpoints can be dialled from here.
    bool dial_back = false;
    std::string software;  // our version, told in hello
};

class Master {
  public:
    explicit Master(const MasterOptions& options);
    ~Master();
    Master(const Master&) = delete;
    Master& operator=(const Master&) = delete;

    // Raises std::system_error, naming host and port, when the lane cannot listen. Once only.
    void start();
    // Ends the lane's connections, answers every parked call CLOSED and joins the threads; well below a
    // second. Idempotent, also before start(). Requests submitted afterwards are answered CLOSED.
    void stop();

    std::uint16_t lane_port() const;  // 0 unless started
    std::uint64_t epoch() const { return driver_->epoch(); }
    const wire::Uuid& uuid() const { return options_.uuid; }

    // See StateDriver::submit; for requests that did not come over the lane.
    void submit(wire::Verb verb, wire::Bytes body, StateDriver::Completion done);

    std::vector<std::pair<std::string, std::uint64_t>> stats() const;
    std::vector<RequestMetrics::Histogram> request_histograms() const;
    std::uint64_t hear_of_reign(std::uint64_t epoch, const wire::Uuid& master) {
        return driver_->hear_of_reign(epoch, master);
    }
    void serve_until(std::uint64_t boottime_ms) { driver_->serve_until(boottime_ms); }
    // What a master after this one must not take in: see StateDriver and Metadata. restore is for before
    // start().
    std::uint64_t tombstones_generation() const { return driver_->tombstones_generation(); }
    wire::Buffer tombstones() const { return driver_->tombstones(); }
    bool restore_tombstones(wire::Bytes kept) { return driver_->restore_tombstones(kept); }
    void tombstones_kept(std::uint64_t generation) { driver_->tombstones_kept(generation); }
    void check_invariants() const { driver_->check_invariants(); }

  private:
    void dial_nodes_back();
    void let_time_pass();
    bool sleep_ms(std::uint64_t delay_ms);

    MasterOptions options_;
    BoundedClock clock_;
    std::shared_ptr<StateDriver> driver_;
    mutable std::mutex running_mutex_;  // guards what start and stop change; taken before every other lock
    std::unique_ptr<net::Prober> prober_;
    std::unique_ptr<DialBack> dial_back_;  // asks prober_
    std::unique_ptr<LaneServer> lane_;
    std::thread time_;
    bool is_stopped_ = false;

    std::mutex time_mutex_;  // guards is_time_over_
    std::condition_variable time_over_;
    bool is_time_over_ = false;
};

}  // namespace mooncake::master
