// A node's life with its master: finds it, opens a session, mounts the segments, reports, carries out
// retires and copies, and starts over for as long as it takes when anything of that ends. Nothing ever needs
// a restart.
//
// Owns the control connection and its loop. Decides which master to obey (epochs) and when the data held
// belongs to an incarnation that the master has expelled; what that means for ranges is the directory's.
//
//   find ─► dial ─► hello ─► open session ─► mount ─► report every heartbeat_interval, and when ranges were
//   freed
//     ▲        any failure: wait 50 ms … 1 s     │             │
//     └──────────────────────────────────────────┴─────────────┘ session or segment unknown: drop all, new
//     incarnation; another master's session: keep all and tell it (inventory)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/endpoint.h"
#include "net/event_loop.h"
#include "node/copier.h"
#include "node/holdings.h"
#include "node/reign_watch.h"
#include "wire/ids.h"

namespace mooncake::node {

struct ControlSegment {
    std::string name;  // unique in the cluster while mounted
    std::vector<std::string> endpoints;
};

struct ControlOptions {
    std::vector<net::Endpoint> masters;  // gRPC addresses, asked in turn where the lane is
    std::optional<net::Endpoint> lane;   // known already: no one is asked
    std::vector<ControlSegment> segments;
    std::string name;
    std::string host_id;
    std::string software = "mooncake-store";
    std::uint64_t connect_timeout_ms = 1'000;
    std::uint64_t request_timeout_ms = 3'000;
    std::uint64_t retry_min_ms = 50;
    std::uint64_t retry_max_ms = 1'000;
    std::uint64_t hold_back_ms = 2'000;  // from a new master, by a node that did not hear the last one's end
    std::uint64_t freed_delay_ms = 5;    // reports of freed ranges wait this long for more of them
    std::uint64_t leave_timeout_ms = 1'000;
    std::uint64_t drain_period_ms = 20;  // between two looks at how far a handover is
};

inline constexpr std::size_t kMastersBeforeMax = 16;

struct ControlStatus {
    bool connected = false;
    bool mounted = false;
    bool unreachable = false;  // says the master that last refused a mount; until one is accepted
    std::uint64_t epoch = 0;
    wire::Uuid master{};
    std::uint64_t client_ttl_ms = 0;         // of the session
    std::vector<wire::Uuid> masters_before;  // followed earlier, the last kMastersBeforeMax
    wire::SessionId session = 0;
    wire::Uuid incarnation{};
    std::vector<wire::SegmentId> segments;
    std::uint64_t mounts_total = 0;
    std::uint64_t expulsions_total = 0;  // incarnations ended by the master while this process lived
    std::uint64_t reports_total = 0;
    std::uint64_t inventories_total = 0;  // complete ones: masters that took over what is held
    std::uint64_t reported_replicas_total = 0;
    std::uint64_t comparisons_total = 0;  // lists given to a master that counted otherwise
    std::uint64_t retired_total = 0;
    std::uint64_t copies_ordered_total = 0;
    std::uint64_t handed_over_total = 0;
    std::uint64_t last_command_id = 0;
    std::string last_error;  // of the last attempt that failed; kept after success

    void follow(const wire::Uuid& next);  // as `master`, from now on
};

class Control {
  public:
    class State;  // control_state.h
    // `incarnation_changed`: called on the control loop with each new incarnation, and once by the
    // constructor.
    Control(std::shared_ptr<Holdings> holdings, const ControlOptions& options,
            std::function<void(const wire::Uuid&)> incarnation_changed);
    ~Control();
    void start();
    // Has the master move what it can elsewhere, for at most handover_ms (0: not at all); then nothing is
    // read or written here any more but what is under way, and it unmounts and closes the session, if the
    // master answers within leave_timeout_ms. Idempotent.
    void stop(std::uint64_t handover_ms = 0);

    bool wait_mounted(std::uint64_t timeout_ms);
    ControlStatus status() const;
    const Copier& copier() const { return *copier_; }

  private:
    net::LoopThreads loops_;
    std::unique_ptr<Copier> copier_;
    std::shared_ptr<State> state_;
    std::unique_ptr<ReignWatch> reigns_;
};

}  // namespace mooncake::node
