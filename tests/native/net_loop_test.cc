// EventLoop and LoopThreads: order, timers, handlers that come and go, and the end of a loop.
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "net/event_loop.h"
#include "net_harness.h"

using namespace harness;

namespace {

// Runs `task` on the loop and waits for its end.
void on_loop(net::EventLoop& loop, std::function<void()> task) {
    Journal journal;
    loop.post([&] {
        task();
        journal.note("ran");
    });
    journal.wait("ran");
}

struct Counter : net::FdHandler {
    std::function<void()> react;
    int events = 0;
    void on_events(std::uint32_t) override {
        ++events;
        if (react) react();
    }
};

net::FileDescriptor readable_fd() { return net::FileDescriptor(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)); }

}  // namespace

TEST(posts_of_one_thread_run_in_order) {
    net::LoopThreads loops("loop", 1);
    std::vector<std::thread> threads;
    std::vector<std::vector<int>> seen(4);
    for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 5000; ++i) loops.at(0).post([&, t, i] { seen[t].push_back(i); });
        });
    }
    for (auto& thread : threads) thread.join();
    on_loop(loops.at(0), [] {});
    for (const auto& numbers : seen) {
        CHECK_EQUAL(numbers.size(), 5000u);
        for (int i = 0; i < 5000; ++i) CHECK_EQUAL(numbers[static_cast<std::size_t>(i)], i);
    }
}

TEST(timers_fire_in_the_order_of_their_times_and_can_be_cancelled) {
    net::LoopThreads loops("loop", 1);
    net::EventLoop& loop = loops.at(0);
    Journal journal;
    std::string order;
    const std::uint64_t start = net::monotonic_ms();
    loop.post([&] {
        loop.call_after(60, [&] {
            order += "c";
            CHECK(net::monotonic_ms() - start >= 60);
            journal.note("last");
        });
        loop.call_after(20, [&] { order += "b"; });
        loop.call_after(0, [&] { order += "a"; });
        const auto never = loop.call_after(30, [&] { order += "x"; });
        loop.call_after(10, [&, never] { loop.cancel(never); });
        for (int i = 0; i < 10'000; ++i) loop.cancel(loop.call_after(1'000'000, [&] { order += "y"; }));
    });
    journal.wait("last");
    on_loop(loop, [&] { CHECK_EQUAL(order, "abc"); });
}

TEST(a_timer_that_sets_itself_again_does_not_starve_tasks) {
    net::LoopThreads loops("loop", 1);
    net::EventLoop& loop = loops.at(0);
    std::function<void()> again = [&] { loop.call_after(0, again); };
    loop.post(again);
    for (int i = 0; i < 100; ++i) on_loop(loop, [] {});
}

TEST(a_handler_removed_by_another_of_the_same_batch_is_not_called) {
    net::LoopThreads loops("loop", 1);
    net::EventLoop& loop = loops.at(0);
    net::FileDescriptor fds[2] = {readable_fd(), readable_fd()};
    Counter counters[2];
    on_loop(loop, [&] {  // whichever comes first removes the other
        for (int i : {0, 1}) {
            counters[i].react = [&, i] {
                loop.unwatch(fds[i].get());
                loop.unwatch(fds[1 - i].get());
            };
            loop.watch(fds[i].get(), EPOLLIN, counters[i]);
        }
    });
    on_loop(loop, [] {});
    on_loop(loop, [&] { CHECK_EQUAL(counters[0].events + counters[1].events, 1); });
}

TEST(an_event_of_a_closed_descriptor_does_not_reach_the_next_owner_of_its_number) {
    net::LoopThreads loops("loop", 1);
    net::EventLoop& loop = loops.at(0);
    net::FileDescriptor fds[2] = {readable_fd(), readable_fd()};
    net::FileDescriptor quiet;
    Counter counters[2];
    Counter next_owner;
    on_loop(loop, [&] {
        for (int i : {0, 1}) {
            counters[i].react = [&, i] {
                const int other = fds[1 - i].get();
                loop.unwatch(fds[i].get());
                loop.unwatch(other);
                fds[1 - i].reset();
                quiet.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
                CHECK_EQUAL(quiet.get(), other);
                loop.watch(quiet.get(), EPOLLIN, next_owner);
            };
            loop.watch(fds[i].get(), EPOLLIN, counters[i]);
        }
    });
    on_loop(loop, [] {});
    on_loop(loop, [&] {
        CHECK_EQUAL(counters[0].events + counters[1].events, 1);
        CHECK_EQUAL(next_owner.events, 0);
        loop.unwatch(quiet.get());
    });
}

TEST(what_was_posted_before_the_end_runs_and_what_comes_later_is_refused) {
    struct Last : net::FdHandler {
        net::EventLoop* loop = nullptr;
        int fd = -1;
        std::string log;
        void on_events(std::uint32_t) override {}
        void on_loop_end() override {
            CHECK(loop->in_loop());
            loop->unwatch(fd);
            loop->post([this] { log += "posted at the end"; });
        }
    } last;
    const net::FileDescriptor fd(eventfd(0, EFD_CLOEXEC));
    net::LoopThreads loops("loop", 1);
    last.loop = &loops.at(0);
    last.fd = fd.get();
    int ran = 0;
    loops.at(0).post([&] { last.loop->watch(fd.get(), EPOLLIN, last); });
    for (int i = 0; i < 1000; ++i) loops.at(0).post([&] { ++ran; });
    loops.stop();
    loops.stop();
    CHECK_EQUAL(ran, 1000);
    CHECK_EQUAL(last.log, "posted at the end");
    CHECK(!loops.at(0).try_post([&] { ++ran; }));
    CHECK(!loops.at(0).in_loop());
    CHECK_EQUAL(ran, 1000);
}

TEST(loop_threads_have_names_and_take_no_signals) {
    net::LoopThreads loops("a-very-long-name-indeed", 2);
    on_loop(loops.at(1), [] {
        char name[16] = "";
        CHECK(pthread_getname_np(pthread_self(), name, sizeof name) == 0);
        CHECK_EQUAL(std::string(name), "a-very-long-n-1");
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        CHECK(sigismember(&mask, SIGINT) == 1);
        CHECK(sigismember(&mask, SIGTERM) == 1);
        CHECK(sigismember(&mask, SIGSEGV) == 0);
    });
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    CHECK(sigismember(&mask, SIGINT) == 0);
}

TEST(next_gives_each_loop_in_turn) {
    net::LoopThreads loops("loop", 3);
    for (std::size_t i = 0; i < 6; ++i) CHECK(&loops.next() == &loops.at(i % 3));
}

int main(int argc, char** argv) { return check::run(argc, argv); }
