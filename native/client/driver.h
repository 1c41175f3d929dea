// What the calls of one client share: its settings, what it knows about the cluster (locked), and its
// connections. Owns no thread and decides nothing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/core/cluster.h"
#include "client/local_peers.h"
#include "client/options.h"
#include "net/client_socket.h"
#include "net/connection_pool.h"
#include "net/event_loop.h"
#include "net/handover.h"

namespace mooncake::client {

// ClusterState behind a lock. Held for a few instructions a call, never while waiting.
class LockedCluster final : public Cluster {
  public:
    LockedCluster(std::string tenant, std::string host_id, std::uint64_t seed, std::size_t location_cache_max)
        : tenant_(tenant), state_(std::move(tenant), std::move(host_id), seed, location_cache_max) {}

    template <class Use>
    auto locked(Use use) {
        const std::lock_guard lock(mutex_);
        return use(state_);
    }

    std::string_view tenant() const override { return tenant_; }
    Stamp stamp(bool mutating) override {
        return locked([&](auto& state) { return state.stamp(mutating); });
    }
    void avoid(std::vector<wire::SegmentId>& segments) override {
        locked([&](auto& state) { state.avoid(segments); });
    }
    Route route(wire::SegmentId segment) override {
        return locked([&](auto& state) { return state.route(segment); });
    }
    void learn(std::span<const wire::SegmentId> asked, std::span<const wire::SegmentInfo> infos) override {
        const bool is_to_probe = locked([&](auto& state) {
            state.learn(asked, infos);
            return state.unreachable_count() > 0;
        });
        if (is_to_probe && poke_keeper) poke_keeper();
    }
    void peer_answered(PeerId peer) override {
        locked([&](auto& state) { state.peer_answered(peer); });
    }
    void peer_failed(PeerId peer, Failure failure, std::uint64_t now_ms) override {
        const bool is_to_probe = locked([&](auto& state) {
            state.peer_failed(peer, failure, now_ms);
            return state.unreachable_count() > 0;
        });
        if (is_to_probe && poke_keeper) poke_keeper();
    }
    LocationStamp location_stamp(std::uint64_t) override {
        const auto now_ms = net::boottime_ms();
        return locked([&](auto& state) { return state.location_stamp(now_ms); });
    }
    bool recall(std::string_view key, LocationStamp now, Location& into) override {
        return locked([&](auto& state) { return state.recall(key, now, into); });
    }
    void remember(std::string_view key, const Location& location, LocationStamp asked,
                  std::uint64_t ttl_ms) override {
        locked([&](auto& state) { state.remember(key, location, asked, ttl_ms); });
    }
    void recalled_was_read(std::string_view key, std::uint64_t now_ms) override {
        const bool is_first = locked([&](auto& state) {
            const bool was_empty = !state.locations().has_accesses();
            state.recalled_was_read(key, now_ms);
            return was_empty;
        });
        if (is_first && poke_keeper) poke_keeper();
    }
    void recalled_was_stale(std::string_view key) override {
        locked([&](auto& state) { state.recalled_was_stale(key); });
    }
    void bar(std::span<const std::string_view> keys, std::uint64_t) override {
        const auto now_ms = net::boottime_ms();
        locked([&](auto& state) { state.bar(keys, now_ms); });
    }
    void release(std::span<const std::string_view> keys, std::uint64_t now_ms) override {
        const bool is_first = locked([&](auto& state) {
            const bool was_empty = !state.has_releases();
            state.release(keys, now_ms);
            return was_empty;
        });
        if (is_first && poke_keeper) poke_keeper();
    }
    void revoke(std::span<const wire::PutId> put_ids) override {
        locked([&](auto& state) { state.revoke(put_ids); });
        if (poke_keeper) poke_keeper();
    }
    void releases_told() {
        locked([](auto& state) { state.releases_told(); });
        told_.notify_all();
    }
    // Until the master has been told of all that was released up to now, at most so long.
    void wait_releases_told(std::uint64_t wait_ms);
    // Wakes the keeper; set by it.
    std::function<void()> poke_keeper;

    std::uint64_t random() override {
        return locked([](auto& state) { return state.random(); });
    }

  private:
    const std::string tenant_;
    std::mutex mutex_;  // innermost: nothing else is locked under it
    std::condition_variable told_;
    ClusterState state_;
};

class Driver {
  public:
    Driver(const Options& options, const wire::Uuid& process, std::uint64_t seed);

    const Options& options() const { return options_; }
    const wire::Uuid& process() const { return process_; }
    LockedCluster& cluster() { return cluster_; }

    // Where the master is, once it is known; another address closes the idle connections to the old one.
    // grpc: empty when only the lane is known.
    void set_master(const net::Endpoint& lane, const net::Endpoint& grpc);
    // The door by which the master is asked from now on. The bridge is started when it is first opened;
    // false: it cannot be, and `why` tells it. lane_why: why the lane is not used.
    void use_lane();
    bool use_grpc(const std::string& lane_why, std::string& why);
    bool is_over_grpc();
    const std::shared_ptr<net::ConnectionPool>& lane_pool() { return lane_pool_; }
    // A pool lives as long as somebody uses it; that of a peer which was forgotten is not given again.
    std::shared_ptr<net::ConnectionPool> peer_pool(PeerId peer);
    // Of the connection that views of this peer's memory hold open.
    std::shared_ptr<net::ConnectionPool> view_pool(PeerId peer);
    void close_idle();
    // Connections of peers that were forgotten, and those that nobody used for long.
    void close_old(std::uint64_t now_ms);

    // A connection that takes the lane's frames, by either door. At most connect_timeout_ms, and not beyond
    // deadline_ms.
    std::unique_ptr<net::ClientDial> dial_lane(std::uint64_t deadline_ms);
    // By its Unix socket where that can be, else by TCP. nullptr: there is no such address; `why` tells it.
    std::unique_ptr<net::ClientDial> dial_peer(PeerId peer, std::uint64_t deadline_ms, std::string& why);
    // What became of a dial by a Unix socket.
    void dialled_locally(PeerId peer, const net::ClientSocket& socket);
    void not_dialled_locally(PeerId peer, const std::string& why, std::uint64_t now_ms);
    LocalPeers& local_peers() { return local_peers_; }
    wire::Hello hello(wire::Role role) const;
    // For a caller that waits. nullptr: `why` names the address.
    std::unique_ptr<net::ClientSocket> connect_lane(net::Patience patience, std::string& why,
                                                    wire::Status& status);
    // The same to the lane itself, whatever the door.
    std::unique_ptr<net::ClientSocket> try_lane(net::Patience patience);

    // How a call asks for another session, and waits: the keeper opens it.
    std::uint64_t session_generation();
    void want_session();
    bool take_session_wanted();
    void session_opened(const wire::OpenSessionReply& session);
    void wait_session(std::uint64_t generation, std::uint64_t wait_ms);

    // The keeper has no connection to a master; `is_silent`: its last attempt got no answer in all its time.
    void master_lost(std::uint64_t now_ms, bool is_silent);
    // How long there has been none, in ms, where that is longer than a call waits for one (rpc_timeout_ms);
    // else 0. A call then waits for no more than one attempt: the first ones have waited for all.
    std::uint64_t master_given_up_ms(std::uint64_t now_ms) const;
    bool is_master_silent() const { return master_silent_.load(std::memory_order_relaxed); }
    // Asks the keeper for an attempt, soon; has_failed(number): that one, begun after this call, found none.
    std::uint64_t want_attempt();
    bool take_attempt_wanted() { return attempt_wanted_.exchange(false); }
    void attempt_begins() { attempts_begun_.fetch_add(1); }
    void attempt_ended() { attempts_ended_.store(attempts_begun_.load()); }
    bool has_failed(std::uint64_t attempt, std::uint64_t now_ms) const {
        return attempts_ended_.load() >= attempt && master_given_up_ms(now_ms) != 0;
    }
    void poke_keeper() {
        if (cluster_.poke_keeper) cluster_.poke_keeper();
    }

    bool is_closed() const { return closed_.load(std::memory_order_acquire); }
    // This process is a child of the one that made the client: its threads do not exist here, its locks may
    // be held for ever, its sockets are the parent's.
    bool is_forked() const;
    void set_closed() { closed_.store(true, std::memory_order_release); }

  private:
    std::uint64_t dial_deadline(std::uint64_t deadline_ms) const;

    const Options options_;
    const wire::Uuid process_;
    LockedCluster cluster_;
    LocalPeers local_peers_;
    const std::shared_ptr<net::ConnectionPool> lane_pool_;
    const std::uint64_t forks_;
    std::atomic<bool> closed_ = false;
    std::atomic<std::uint64_t> master_lost_at_ms_ = 0;  // 0: there is one
    std::atomic<bool> master_silent_ = false;
    std::atomic<std::uint64_t> attempts_begun_ = 0;  // by the keeper's thread alone
    std::atomic<std::uint64_t> attempts_ended_ = 0;
    std::atomic<bool> attempt_wanted_ = false;

    std::mutex mutex_;  // guards what follows; outside of the pools' and the cluster's locks
    std::condition_variable session_changed_;
    net::Endpoint lane_;
    net::Endpoint grpc_;
    bool is_over_grpc_ = false;
    std::shared_ptr<const net::Handover> bridge_;  // once it was started
    using Pools = std::unordered_map<PeerId, std::shared_ptr<net::ConnectionPool>>;
    Pools peer_pools_;
    Pools view_pools_;
    std::uint64_t session_generation_ = 0;
    bool session_wanted_ = false;
};

}  // namespace mooncake::client
