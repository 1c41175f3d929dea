// CallQueue: order, bounds, cancellation of what waits and of what runs, expiry, the end.
#include "net/call_queue.h"

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "check.h"
#include "net/event_loop.h"

using namespace mooncake;
using net::CallQueue;
using net::QueuedCall;

namespace {

constexpr std::uint64_t kHangMs = 60'000;

std::uint64_t never() { return net::monotonic_ms() + kHangMs; }

// Waits for a word from the test; says when it began, and in which order.
struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<int> begun;
    bool is_open = false;

    void open() {
        const std::lock_guard lock(mutex);
        is_open = true;
        changed.notify_all();
    }
    void wait_begun(std::size_t count) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return begun.size() >= count; });
    }
};

struct Waiter final : QueuedCall {
    Waiter(Gate& of_gate, int of_number, std::uint64_t until_ms = never())
        : QueuedCall(until_ms), gate(of_gate), number(of_number) {}

    void run(const std::function<bool()>& interrupted) override {
        std::unique_lock lock(gate.mutex);
        gate.begun.push_back(number);
        gate.changed.notify_all();
        while (!gate.is_open && !interrupted()) {
            gate.changed.wait_for(lock, std::chrono::milliseconds(1));
        }
    }

    Gate& gate;
    const int number;
};

struct Thrower final : QueuedCall {
    using QueuedCall::QueuedCall;
    void run(const std::function<bool()>&) override { throw std::runtime_error("thrown"); }
};

std::vector<std::shared_ptr<QueuedCall>> take(CallQueue& queue, std::size_t count) {
    std::vector<std::shared_ptr<QueuedCall>> taken;
    while (taken.size() < count) {
        pollfd entry{queue.fd(), POLLIN, 0};
        CHECK(::poll(&entry, 1, kHangMs) == 1);
        for (auto& call : queue.take_done()) taken.push_back(std::move(call));
    }
    return taken;
}

}  // namespace

TEST(runs_in_order_within_its_bounds) {
    Gate gate;
    CallQueue queue(1, 3);
    CHECK(queue.submit(std::make_shared<Waiter>(gate, 0)) == CallQueue::Submitted::kTaken);
    gate.wait_begun(1);
    for (int i = 1; i <= 3; ++i) {
        CHECK(queue.submit(std::make_shared<Waiter>(gate, i)) == CallQueue::Submitted::kTaken);
    }
    CHECK(queue.submit(std::make_shared<Waiter>(gate, 4)) == CallQueue::Submitted::kFull);
    gate.open();
    CHECK(take(queue, 4).size() == 4);
    CHECK(gate.begun == (std::vector<int>{0, 1, 2, 3}));
}

TEST(many_threads_submit_and_each_call_is_told_once) {
    Gate gate;
    gate.open();
    CallQueue queue(4, 1'000);
    std::vector<std::thread> threads;
    for (int who = 0; who < 4; ++who) {
        threads.emplace_back([&, who] {
            for (int i = 0; i < 100; ++i) queue.submit(std::make_shared<Waiter>(gate, who));
        });
    }
    std::set<QueuedCall::Id> ids;
    for (const auto& call : take(queue, 400)) ids.insert(call->id());
    for (auto& thread : threads) thread.join();
    CHECK(ids.size() == 400);
}

TEST(cancels_what_waits_at_once_and_what_runs_when_it_returned) {
    Gate gate;
    CallQueue queue(1, 10);
    const auto running = std::make_shared<Waiter>(gate, 0);
    const auto waiting = std::make_shared<Waiter>(gate, 1);
    queue.submit(running);
    gate.wait_begun(1);
    queue.submit(waiting);
    CHECK(queue.cancel(waiting->id()));
    CHECK(!queue.cancel(running->id()));
    queue.wait(running->id());
    CHECK(running->is_interrupted());
    CHECK(take(queue, 1).front() == running);
    CHECK(queue.cancel(running->id()));
    CHECK(gate.begun == std::vector<int>{0});
}

TEST(expires_what_waits_beyond_its_deadline) {
    Gate gate;
    CallQueue queue(1, 10);
    queue.submit(std::make_shared<Waiter>(gate, 0));
    gate.wait_begun(1);
    const auto late = std::make_shared<Waiter>(gate, 1, net::monotonic_ms() + 1'000'000);
    queue.submit(late);
    queue.expire(net::monotonic_ms());
    CHECK(queue.take_done().empty());
    queue.expire(late->deadline_ms);
    CHECK(take(queue, 1).front() == late);
    CHECK(late->is_expired());
    gate.open();
    CHECK(take(queue, 1).size() == 1);
    CHECK(gate.begun == std::vector<int>{0});
}

TEST(keeps_what_a_call_throws) {
    CallQueue queue(1, 1);
    queue.submit(std::make_shared<Thrower>(never()));
    CHECK(take(queue, 1).front()->failure() != nullptr);
}

TEST(close_interrupts_runs_out_and_may_be_called_by_many) {
    Gate gate;
    CallQueue queue(2, 100);
    for (int i = 0; i < 20; ++i) queue.submit(std::make_shared<Waiter>(gate, i));
    gate.wait_begun(2);
    std::thread opener([&] {
        gate.wait_begun(3);
        gate.open();
    });
    std::vector<std::thread> closers;
    for (int i = 0; i < 3; ++i) closers.emplace_back([&] { queue.close(); });
    for (auto& closer : closers) closer.join();
    opener.join();
    CHECK(queue.take_done().size() == 20);
    CHECK(queue.submit(std::make_shared<Waiter>(gate, 99)) == CallQueue::Submitted::kClosed);
    CHECK(!queue.resubmit(std::make_shared<Waiter>(gate, 99)));
}

int main(int argc, char** argv) { return check::run(argc, argv); }
