#include "client/driver.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "net/endpoint.h"
#include "net/event_loop.h"

namespace mooncake::client {

namespace {

std::atomic<std::uint64_t> g_forks{0};

// How often this process became the child of a fork.
std::uint64_t fork_count() {
    static const int registered =
        ::pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });
    (void)registered;
    return g_forks.load(std::memory_order_relaxed);
}

}  // namespace

void LockedCluster::wait_releases_told(std::uint64_t wait_ms) {
    std::uint64_t releases = 0;
    const bool is_told = locked([&](auto& state) {
        releases = state.hurry_releases();
        return state.is_told(releases);
    });
    if (is_told) return;
    if (poke_keeper) poke_keeper();
    std::unique_lock lock(mutex_);
    told_.wait_for(lock, std::chrono::milliseconds(wait_ms), [&] { return state_.is_told(releases); });
}

Driver::Driver(const Options& options, const wire::Uuid& process, std::uint64_t seed)
    : options_(options),
      process_(process),
      cluster_(options.tenant, options.host_id, seed, options.location_cache_max),
      local_peers_(options.shared_memory),
      lane_pool_(std::make_shared<net::ConnectionPool>(kLaneConnectionsMax, ~std::uint64_t{0})),
      forks_(fork_count()) {}

bool Driver::is_forked() const { return fork_count() != forks_; }

void Driver::set_master(const net::Endpoint& lane, const net::Endpoint& grpc) {
    const auto is_same = [](const net::Endpoint& a, const net::Endpoint& b) {
        return a.host == b.host && a.port == b.port;
    };
    {
        const std::lock_guard lock(mutex_);
        if (is_same(lane, lane_) && is_same(grpc, grpc_)) return;
        lane_ = lane;
        grpc_ = grpc;
    }
    lane_pool_->close_idle();
}

void Driver::use_lane() {
    {
        const std::lock_guard lock(mutex_);
        if (!std::exchange(is_over_grpc_, false)) return;
    }
    lane_pool_->close_idle();
}

// The keeper alone calls it, so that the bridge is started once.
bool Driver::use_grpc(const std::string& lane_why, std::string& why) {
    net::Endpoint lane, grpc;
    bool has_bridge = false;
    {
        const std::lock_guard lock(mutex_);
        lane = lane_;
        grpc = grpc_;
        has_bridge = bridge_ != nullptr;
    }
    std::shared_ptr<const net::Handover> started;
    if (!has_bridge) {
        if (!options_.start_bridge) {
            why = "this client speaks the lane only";
            return false;
        }
        net::FileDescriptor taker(
            options_.start_bridge(net::to_text(lane), net::to_text(grpc), lane_why, why));
        if (!taker) return false;
        started = std::make_shared<const net::Handover>(std::move(taker));
    }
    {
        const std::lock_guard lock(mutex_);
        if (started) bridge_ = std::move(started);
        if (std::exchange(is_over_grpc_, true)) return true;
    }
    lane_pool_->close_idle();
    return true;
}

bool Driver::is_over_grpc() {
    const std::lock_guard lock(mutex_);
    return is_over_grpc_;
}

std::shared_ptr<net::ConnectionPool> Driver::peer_pool(PeerId peer) {
    const std::lock_guard lock(mutex_);
    auto& pool = peer_pools_[peer];
    if (!pool) {
        pool = std::make_shared<net::ConnectionPool>(options_.connections_a_peer_max,
                                                     options_.bytes_in_flight_a_peer_max);
    }
    return pool;
}

// One connection, because what its views cover is bounded by connection.
std::shared_ptr<net::ConnectionPool> Driver::view_pool(PeerId peer) {
    const std::lock_guard lock(mutex_);
    auto& pool = view_pools_[peer];
    if (!pool) pool = std::make_shared<net::ConnectionPool>(1, options_.bytes_in_flight_a_peer_max);
    return pool;
}

void Driver::close_idle() {
    lane_pool_->close_idle();
    const std::lock_guard lock(mutex_);
    for (const auto& [peer, pool] : peer_pools_) pool->close_idle();
    for (const auto& [peer, pool] : view_pools_) pool->close_idle();
}

void Driver::close_old(std::uint64_t now_ms) {
    lane_pool_->close_old(now_ms);
    std::vector<std::pair<PeerId, std::shared_ptr<net::ConnectionPool>>> pools;
    {
        const std::lock_guard lock(mutex_);
        pools.assign(peer_pools_.begin(), peer_pools_.end());
        pools.insert(pools.end(), view_pools_.begin(), view_pools_.end());
    }
    std::vector<PeerId> forgotten;
    cluster_.locked([&](const auto& state) {
        for (const auto& [peer, pool] : pools) {
            if (!state.knows(peer)) forgotten.push_back(peer);
        }
    });
    for (const auto& [peer, pool] : pools) pool->close_old(now_ms);
    for (const auto peer : forgotten) local_peers_.forget(peer);
    const std::lock_guard lock(mutex_);
    for (const auto peer : forgotten) {
        peer_pools_.erase(peer);
        view_pools_.erase(peer);
    }
}

wire::Hello Driver::hello(wire::Role role) const {
    wire::Hello hello;
    hello.role = role;
    hello.process = process_;
    hello.software = "mooncake-store";
    hello.tenant = options_.tenant;
    return hello;
}

std::uint64_t Driver::dial_deadline(std::uint64_t deadline_ms) const {
    return std::min(deadline_ms, net::monotonic_ms() + options_.connect_timeout_ms);
}

std::unique_ptr<net::ClientDial> Driver::dial_lane(std::uint64_t deadline_ms) {
    net::Endpoint endpoint;
    std::shared_ptr<const net::Handover> bridge;
    {
        const std::lock_guard lock(mutex_);
        endpoint = is_over_grpc_ ? grpc_ : lane_;
        if (is_over_grpc_) bridge = bridge_;
    }
    const auto hello = this->hello(wire::Role::kClient);
    deadline_ms = dial_deadline(deadline_ms);
    if (!bridge) return std::make_unique<net::ClientDial>(endpoint, hello, deadline_ms);
    return std::make_unique<net::ClientDial>(endpoint, bridge->connect(net::to_text(endpoint)), hello,
                                             deadline_ms);
}

std::unique_ptr<net::ClientDial> Driver::dial_peer(PeerId peer, std::uint64_t deadline_ms, std::string& why) {
    std::string local;
    const auto text = cluster_.locked([&](const auto& state) {
        local = state.peer_local_endpoint(peer);
        return state.peer_endpoint(peer);
    });
    const auto endpoint = net::parse_endpoint(text);
    if (!endpoint) {
        why = text.empty() ? "the node has left" : "a node advertises '" + text + "', which is no address";
        return nullptr;
    }
    const auto hello = this->hello(wire::Role::kData);
    deadline_ms = dial_deadline(deadline_ms);
    if (auto dial = local_peers_.dial(peer, *endpoint, local, hello, deadline_ms)) return dial;
    return std::make_unique<net::ClientDial>(*endpoint, hello, deadline_ms);
}

void Driver::dialled_locally(PeerId peer, const net::ClientSocket& socket) {
    if (local_peers_.dialled(peer, socket)) {
        cluster_.locked([peer](auto& state) { state.set_mapped(peer, true); });
    }
}

void Driver::not_dialled_locally(PeerId peer, const std::string& why, std::uint64_t now_ms) {
    local_peers_.failed(peer, why, now_ms);
    cluster_.locked([peer](auto& state) { state.set_mapped(peer, false); });
}

std::unique_ptr<net::ClientSocket> Driver::connect_lane(net::Patience patience, std::string& why,
                                                        wire::Status& status) {
    patience.deadline_ms = dial_deadline(patience.deadline_ms);
    const auto dial = dial_lane(patience.deadline_ms);
    return net::ClientSocket::connect(*dial, patience, why, status);
}

std::unique_ptr<net::ClientSocket> Driver::try_lane(net::Patience patience) {
    patience.deadline_ms = dial_deadline(patience.deadline_ms);
    net::Endpoint endpoint;
    {
        const std::lock_guard lock(mutex_);
        endpoint = lane_;
    }
    std::string why;
    auto status = wire::Status::kOk;
    return net::ClientSocket::connect(endpoint, hello(wire::Role::kClient), patience, why, status);
}

std::uint64_t Driver::session_generation() {
    const std::lock_guard lock(mutex_);
    return session_generation_;
}

void Driver::want_session() {
    {
        const std::lock_guard lock(mutex_);
        session_wanted_ = true;
    }
    poke_keeper();
}

bool Driver::take_session_wanted() {
    const std::lock_guard lock(mutex_);
    return std::exchange(session_wanted_, false);
}

void Driver::session_opened(const wire::OpenSessionReply& session) {
    cluster_.locked([&](auto& state) { state.session_opened(session); });
    master_lost_at_ms_.store(0, std::memory_order_relaxed);
    master_silent_.store(false, std::memory_order_relaxed);
    {
        const std::lock_guard lock(mutex_);
        ++session_generation_;
    }
    session_changed_.notify_all();
}

void Driver::master_lost(std::uint64_t now_ms, bool is_silent) {
    std::uint64_t never = 0;
    master_lost_at_ms_.compare_exchange_strong(never, now_ms, std::memory_order_relaxed);
    master_silent_.store(is_silent, std::memory_order_relaxed);
}

std::uint64_t Driver::master_given_up_ms(std::uint64_t now_ms) const {
    const auto lost_at_ms = master_lost_at_ms_.load(std::memory_order_relaxed);
    if (lost_at_ms == 0 || now_ms < lost_at_ms + options_.rpc_timeout_ms) return 0;
    return now_ms - lost_at_ms;
}

std::uint64_t Driver::want_attempt() {
    const auto attempt = attempts_begun_.load() + 1;
    attempt_wanted_.store(true);
    poke_keeper();
    return attempt;
}

void Driver::wait_session(std::uint64_t generation, std::uint64_t wait_ms) {
    std::unique_lock lock(mutex_);
    session_changed_.wait_for(lock, std::chrono::milliseconds(wait_ms),
                              [&] { return session_generation_ != generation; });
}

}  // namespace mooncake::client
