// Drives the state machine: takes packed requests from both doors, steps them under the state lock in bounded
// pieces, carries out the effects, and keeps the calls that wait.
//
// Owns: the state lock, the retire queues, which session speaks on which link, parked calls and the table of
// requests in progress. Must not know: sockets (a Link sends), threads of its own (its callers bring theirs),
// Python. Nothing waits in here: a call that has to is parked, and answered by whoever brings the news or by
// tick().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "master/bounded_clock.h"
#include "master/link.h"
#include "master/request_metrics.h"
#include "master/retire_queues.h"
#include "master/state_lock.h"
#include "metadata/metadata.h"
#include "wire/lane.h"

namespace mooncake::master {

struct DriverOptions {
    std::uint64_t alloc_wait_ms = 100;  // a put_start waits at most this long for space that is coming back
    std::uint64_t remove_confirm_timeout_ms = 1'000;  // remove, revoke and upsert: for the nodes to confirm
    // Calls parked at once, and the bytes of their requests. At the limit remove and put_start are answered
    // BUSY before they begin, put_end and put_revoke, on which a written value depends, only at twice the
    // limit: none is answered before its time, for places may be remembered until then.
    std::size_t parked_calls_max = 4'096;
    std::size_t parked_bytes_max = 256u << 20;
    std::size_t repeats_a_call_max = 16;   // askers that wait for one request in progress; then BUSY
    std::size_t sessions_a_link_max = 64;  // sessions that speak on one connection; then BUSY
    // Somebody writes tombstones down and says so (tombstones_kept): what ends a value whose node may be met
    // by a later master is answered only then, within the same timeout.
    bool keeps_tombstones = false;
    // Milliseconds that truly passed, where BoundedClock may have dropped some or not have been read; empty:
    // of the machine.
    std::function<std::uint64_t()> steady_ms;
};

class StateDriver {
  public:
    StateDriver(const metadata::Options& metadata, const DriverOptions& options, std::uint64_t epoch,
                const wire::Uuid& master, std::uint64_t seed, const BoundedClock& clock);
    ~StateDriver();
    StateDriver(const StateDriver&) = delete;
    StateDriver& operator=(const StateDriver&) = delete;

    // Called exactly once, never under a lock, on the submitting thread or on any other that drives: the
    // frame's status and its body. Must not block and must not throw.
    using Completion = std::function<void(wire::Status, wire::Buffer)>;

    // Any thread. `link` is the connection it came over, or null (gRPC). `body` is not used after the return.
    void submit(wire::Verb verb, wire::Bytes body, const LinkPtr& link, Completion done);
    void link_closed(const LinkPtr& link);
    // A node's answer to a retire command. False: malformed, end the connection.
    bool retire_answered(const LinkPtr& link, wire::Status status, wire::Bytes body);
    // The same of a copy command.
    bool copy_answered(const LinkPtr& link, wire::Status status, wire::Bytes body);

    // How the state machine's probes of nodes are carried out: `probe` must not wait, and leads to one
    // probe_ended. Without one, none is made. Set before the first request.
    using Probe = std::function<void(wire::SessionId node, const std::string& endpoint)>;
    void set_probe(Probe probe) { probe_ = std::move(probe); }
    void probe_ended(wire::SessionId node, metadata::ProbeResult result);

    // Asks whether the endpoints of a mount can be dialled back, which must not wait, and tells once: OK, or
    // the refusal (master/dial_back.h). Without one every mount is believed, and always that of what is
    // mounted already. Set before the first request.
    using DialledBack = std::function<void(wire::Status, const std::string& why)>;
    using CheckMount = std::function<void(const wire::Mount&, DialledBack)>;
    void set_dial_back(CheckMount check_mount) { check_mount_ = std::move(check_mount); }

    // What time brings, a bounded slice of it. False: call again soon.
    bool tick();
    // Answers every parked call CLOSED, and every later one.
    void stop();

    // From this moment of CLOCK_BOOTTIME on every request but stats and inspect is refused with STALE_EPOCH:
    // another master may be elected then, and this one may have been asleep. Any thread. Never, unless said.
    void serve_until(std::uint64_t boottime_ms) {
        serve_until_ms_.store(boottime_ms, std::memory_order_release);
    }

    std::uint64_t epoch() const { return epoch_.load(std::memory_order_acquire); }
    RequestMetrics& metrics() { return metrics_; }
    // The state machine's counters and the driver's, by name.
    std::vector<std::pair<std::string, std::uint64_t>> stats();
    // See Metadata. The generation of what is to be kept on disk, and that.
    // See Metadata: what the asker follows. Answers the epoch of the master that reigns instead of this one,
    // or 0.
    std::uint64_t hear_of_reign(std::uint64_t epoch, const wire::Uuid& master);
    std::uint64_t tombstones_generation();
    wire::Buffer tombstones();
    bool restore_tombstones(wire::Bytes kept);
    void tombstones_kept(std::uint64_t generation);
    void check_invariants();

  private:
    struct Call;
    using CallPtr = std::shared_ptr<Call>;
    struct RequestId {
        wire::SessionId session = 0;
        std::uint64_t sequence = 0;
        bool operator==(const RequestId&) const = default;
    };
    struct RequestIdHash {
        std::size_t operator()(const RequestId& id) const;
    };
    struct Answer;
    struct Outbox;
    enum class Progress : std::uint8_t { kGoOn, kPaused };

    // Without the lock.
    bool is_term_over() const;
    std::optional<wire::Mount> mount_to_check(const Call& call, wire::Bytes body);
    void dialled_back(const CallPtr& call, wire::Status status, std::string_view why);
    void advance(const CallPtr& call, Outbox& outbox);
    void carry_out(Outbox& outbox);
    void send_commands(Outbox& outbox);
    void send_commands_to(const LinkPtr& link);
    void give_way();

    // Under the lock.
    bool admit(const CallPtr& call, Outbox& outbox);
    Progress settle(const CallPtr& call, Outbox& outbox);
    Progress settle_waiting(const CallPtr& call, Outbox& outbox);
    bool waits_for_confirmation(const Call& call) const;
    bool is_kept(const Call& call) const;
    void finish_if_confirmed(const CallPtr& call, Outbox& outbox);
    bool parking_is_full(std::size_t times = 1) const;
    void wait_out_memory(Call& call, std::uint64_t now_ms) const;
    void note_memory(Call& call, std::uint64_t since_ms) const;
    std::uint64_t steady_ms() const;
    void park(const CallPtr& call, std::list<CallPtr>& where);
    void unpark(const CallPtr& call);
    void finish(const CallPtr& call, Outbox& outbox);
    void refuse(const CallPtr& call, wire::Status status, std::string_view why, Outbox& outbox);
    void expire_parked(std::uint64_t now_ms, Outbox& outbox);
    void expel_stalled_nodes(std::uint64_t now_ms, Outbox& outbox);
    void absorb(Call* call, Outbox& outbox);
    void await_confirmation(Call* call, wire::ReplicaId replica);
    void replica_confirmed(wire::ReplicaId replica, Outbox& outbox);
    void replica_lost(wire::ReplicaId replica, bool may_be_served, Outbox& outbox);
    bool attach(const LinkPtr& link, wire::SessionId session, Outbox& outbox);
    void detach(const LinkPtr& link, wire::SessionId session);
    void session_ended(wire::SessionId session, Outbox& outbox);
    const LinkPtr* node_link(wire::SessionId session) const;
    void want_commands(wire::SessionId session, Outbox& outbox);
    void want_copy(wire::ReplicaId target, wire::SessionId session, Outbox& outbox);

    const DriverOptions options_;
    const std::uint64_t command_timeout_ms_;  // a node that leaves a command unanswered so long is hung up on
    const std::size_t keys_a_step_max_;
    const BoundedClock& clock_;
    Probe probe_;
    CheckMount check_mount_;
    RequestMetrics metrics_;
    std::atomic<std::uint64_t> epoch_;
    std::atomic<std::uint64_t> serve_until_ms_{~std::uint64_t{0}};
    std::atomic<std::uint64_t> after_term_total_{0};
    const std::uint64_t started_ms_;
    const std::uint64_t remembered_ms_;  // no place is for longer

    StateLock lock_;  // everything below
    metadata::Metadata metadata_;
    metadata::Effects effects_;  // scratch, empty between steps
    RetireQueues queues_;
    std::unordered_map<wire::SessionId, std::vector<LinkPtr>> links_of_;
    std::unordered_map<RequestId, CallPtr, RequestIdHash> in_progress_;
    // Who waits for this replica's confirmation.
    std::unordered_multimap<wire::ReplicaId, CallPtr> awaited_;
    // In the order of their deadlines.
    std::list<CallPtr> space_waiters_;
    std::list<CallPtr> confirm_waiters_;
    std::uint64_t kept_generation_ = 0;  // of tombstones
    std::uint64_t unheard_ms_ = 0;       // when a segment left last without its node's agreement; 0: none did
    std::uint64_t expulsion_generation_ = 0;  // names whoever left the pool last
    std::size_t parked_bytes_ = 0;
    std::uint64_t space_generation_ = 0;  // rises whenever bytes come back
    std::uint64_t next_stall_check_ms_ = 0;
    bool is_stopped_ = false;

    std::uint64_t parked_total_ = 0;
    std::uint64_t space_timeouts_total_ = 0;
    std::uint64_t confirm_timeouts_total_ = 0;
    std::uint64_t busy_total_ = 0;
    std::uint64_t repeats_attached_total_ = 0;
    std::uint64_t retires_refused_total_ = 0;
    std::uint64_t copies_refused_total_ = 0;
    std::uint64_t mounts_unreachable_total_ = 0;
    std::uint64_t stalled_links_total_ = 0;
};

}  // namespace mooncake::master
