#include "net/connection_pool.h"

#include <chrono>

#include "net/event_loop.h"

namespace mooncake::net {

ConnectionPool::Taken ConnectionPool::take(bool fresh, std::uint64_t bytes,
                                           std::unique_ptr<ClientSocket>& socket) {
    std::vector<Idle> closing;  // destroyed after the lock
    const std::lock_guard lock(mutex_);
    if (bytes_in_flight_ > 0 && bytes > 0 && bytes_in_flight_ + bytes > bytes_max_) return Taken::kFull;
    if (fresh) closing.swap(idle_);
    while (!idle_.empty()) {
        Idle last = std::move(idle_.back());
        idle_.pop_back();
        const bool is_recent = monotonic_ms() < last.since_ms + trusted_ms_;
        if (is_recent ? last.socket->is_reusable() : last.socket->is_idle_healthy()) {
            ++in_use_;
            bytes_in_flight_ += bytes;
            socket = std::move(last.socket);
            return Taken::kConnection;
        }
        closing.push_back(std::move(last));
    }
    if (in_use_ >= connections_max_) return Taken::kFull;
    ++in_use_;
    bytes_in_flight_ += bytes;
    return Taken::kSlot;
}

void ConnectionPool::give_back(std::unique_ptr<ClientSocket> socket, std::uint64_t bytes) {
    {
        const std::lock_guard lock(mutex_);
        idle_.push_back({std::move(socket), monotonic_ms()});
        --in_use_;
        bytes_in_flight_ -= bytes;
    }
    returned_.notify_one();
}

void ConnectionPool::drop(std::uint64_t bytes) {
    {
        const std::lock_guard lock(mutex_);
        --in_use_;
        bytes_in_flight_ -= bytes;
    }
    returned_.notify_one();
}

void ConnectionPool::close_idle() {
    std::vector<Idle> closing;
    const std::lock_guard lock(mutex_);
    closing.swap(idle_);
}

void ConnectionPool::close_old(std::uint64_t now_ms) {
    std::vector<Idle> closing;
    const std::lock_guard lock(mutex_);
    const auto is_old = [now_ms](Idle& idle) {
        return now_ms >= idle.since_ms + kIdleMaxMs || !idle.socket->is_idle_healthy();
    };
    for (auto& idle : idle_) {
        if (is_old(idle)) closing.push_back(std::move(idle));
    }
    std::erase_if(idle_, [](const Idle& idle) { return idle.socket == nullptr; });
}

void ConnectionPool::wait(std::uint64_t wait_ms) {
    std::unique_lock lock(mutex_);
    if (in_use_ < connections_max_ && bytes_in_flight_ == 0) return;
    returned_.wait_for(lock, std::chrono::milliseconds(wait_ms));
}

}  // namespace mooncake::net
