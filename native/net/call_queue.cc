#include "net/call_queue.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "net/signals_blocked.h"

namespace mooncake::net {

CallQueue::CallQueue(std::size_t threads_max, std::size_t waiting_max)
    : threads_max_(threads_max), waiting_max_(waiting_max), told_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!told_) throw std::system_error(errno, std::generic_category(), "eventfd");
}

CallQueue::~CallQueue() { close(); }

bool CallQueue::start_thread() {
    const SignalsBlocked blocked;
    try {
        threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
        return false;  // no more threads to be had: those that run do the work
    }
    pthread_setname_np(threads_.back().native_handle(), "mc-call");
    return true;
}

CallQueue::Submitted CallQueue::submit(std::shared_ptr<QueuedCall> call) {
    {
        const std::lock_guard lock(mutex_);
        if (closing_) return Submitted::kClosed;
        if (waiting_.size() >= waiting_max_) return Submitted::kFull;
        if (waiting_.size() >= idle_ && (threads_.size() >= threads_max_ || !start_thread())) {
            if (threads_.empty()) return Submitted::kFull;
        }
        call->id_ = ++last_id_;
        waiting_.push_back(std::move(call));
    }
    changed_.notify_one();
    return Submitted::kTaken;
}

bool CallQueue::resubmit(std::shared_ptr<QueuedCall> call) {
    {
        const std::lock_guard lock(mutex_);
        if (closing_) return false;
        waiting_.push_front(std::move(call));
    }
    changed_.notify_one();
    return true;
}

bool CallQueue::cancel(Id id) {
    const std::lock_guard lock(mutex_);
    if (const auto found = running_.find(id); found != running_.end()) {
        found->second->interrupted_.store(true, std::memory_order_relaxed);
        return false;
    }
    const auto is_it = [id](const auto& call) { return call->id() == id; };
    std::erase_if(waiting_, is_it);
    std::erase_if(done_, is_it);
    return true;
}

void CallQueue::wait(Id id) {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return !running_.contains(id); });
}

void CallQueue::expire(std::uint64_t now_ms) {
    const std::lock_guard lock(mutex_);
    const bool told = !done_.empty();
    std::erase_if(waiting_, [&](auto& call) {
        if (now_ms < call->deadline_ms) return false;
        call->expired_ = true;
        done_.push_back(std::move(call));
        return true;
    });
    if (!told && !done_.empty()) tell();
}

std::vector<std::shared_ptr<QueuedCall>> CallQueue::take_done() {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    // Nothing to read is no error: what it told of was cancelled or taken before.
    [[maybe_unused]] const auto got = ::read(told_.get(), &count, sizeof count);
    return std::exchange(done_, {});
}

void CallQueue::tell() {
    constexpr std::uint64_t kOne = 1;
    [[maybe_unused]] const auto sent = ::write(told_.get(), &kOne, sizeof kOne);
}

void CallQueue::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        ++idle_;
        changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
        --idle_;
        if (waiting_.empty()) return;
        // Not a copy: the last reference must not go away on this thread.
        const auto id = waiting_.front()->id();
        auto& call = *(running_[id] = std::move(waiting_.front()));
        waiting_.pop_front();
        lock.unlock();
        try {
            call.run([&call] { return call.is_interrupted(); });
        } catch (...) {
            call.failure_ = std::current_exception();
        }
        lock.lock();
        done_.push_back(std::move(running_[id]));
        running_.erase(id);
        if (done_.size() == 1) tell();
        returned_.notify_all();
    }
}

void CallQueue::close() {
    std::vector<std::thread> ending;
    {
        std::unique_lock lock(mutex_);
        closing_ = true;
        for (const auto& [id, call] : running_) call->interrupted_.store(true, std::memory_order_relaxed);
        ending.swap(threads_);
        if (ending.empty()) {  // another thread ends them
            returned_.wait(lock, [this] { return !joining_; });
            return;
        }
        joining_ = true;
    }
    changed_.notify_all();
    for (auto& thread : ending) thread.join();
    {
        const std::lock_guard lock(mutex_);
        joining_ = false;
    }
    returned_.notify_all();
}

}  // namespace mooncake::net
