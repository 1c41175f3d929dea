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

Driver::Driver(const Options& options, const wire::Uuid& process, std::uint64_t seed)
    : options_(options),
      process_(process),
      cluster_(options.tenant, options.host_id, seed),
      lane_pool_(kLaneConnectionsMax, ~std::uint64_t{0}),
      forks_(fork_count()) {}

bool Driver::is_forked() const { return fork_count() != forks_; }

void Driver::set_lane(const net::Endpoint& lane) {
    {
        const std::lock_guard lock(mutex_);
        if (lane.host == lane_.host && lane.port == lane_.port) return;
        lane_ = lane;
    }
    lane_pool_.close_idle();
}

net::Endpoint Driver::lane() {
    const std::lock_guard lock(mutex_);
    return lane_;
}

ConnectionPool& Driver::peer_pool(PeerId peer) {
    const std::lock_guard lock(mutex_);
    if (peer >= peer_pools_.size()) peer_pools_.resize(peer + std::size_t{1});
    auto& pool = peer_pools_[peer];
    if (!pool) {
        pool = std::make_unique<ConnectionPool>(options_.connections_a_peer_max,
                                                options_.bytes_in_flight_a_peer_max);
    }
    return *pool;
}

void Driver::close_idle() {
    lane_pool_.close_idle();
    const std::lock_guard lock(mutex_);
    for (const auto& pool : peer_pools_) {
        if (pool) pool->close_idle();
    }
}

std::unique_ptr<net::ClientSocket> Driver::dial(const net::Endpoint& endpoint, wire::Role role,
                                                net::Patience patience, std::string& why,
                                                wire::Status& status) {
    wire::Hello hello;
    hello.role = role;
    hello.process = process_;
    hello.software = "mooncake-store";
    hello.tenant = options_.tenant;
    patience.deadline_ms = std::min(patience.deadline_ms, net::monotonic_ms() + options_.connect_timeout_ms);
    return net::ClientSocket::connect(endpoint, hello, patience, why, status);
}

std::unique_ptr<net::ClientSocket> Driver::dial_lane(const net::Patience& patience, std::string& why) {
    auto status = wire::Status::kOk;
    return dial(lane(), wire::Role::kClient, patience, why, status);
}

std::unique_ptr<net::ClientSocket> Driver::dial_peer(PeerId peer, const net::Patience& patience,
                                                     std::string& why, Failure& failure) {
    const auto text = cluster_.locked([peer](const auto& state) { return state.peer_endpoint(peer); });
    const auto endpoint = net::parse_endpoint(text);
    if (!endpoint) {
        why = "a node advertises '" + text + "', which is no address";
        return nullptr;
    }
    auto status = wire::Status::kOk;
    auto socket = dial(*endpoint, wire::Role::kData, patience, why, status);
    failure = status == wire::Status::kDeadline ? Failure::kDial : Failure::kRefused;
    return socket;
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
    {
        const std::lock_guard lock(mutex_);
        ++session_generation_;
    }
    session_changed_.notify_all();
}

void Driver::wait_session(std::uint64_t generation, std::uint64_t wait_ms) {
    std::unique_lock lock(mutex_);
    session_changed_.wait_for(lock, std::chrono::milliseconds(wait_ms),
                              [&] { return session_generation_ != generation; });
}

}  // namespace mooncake::client
