// One epoll loop and its thread, and a fixed set of them. Everything that belongs to a loop (connections,
// timers) is touched only by its thread; other threads reach it through post().
//
// Knows nothing of frames, masters or nodes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace mooncake::net {

// Milliseconds of CLOCK_MONOTONIC / CLOCK_BOOTTIME (the latter also counts time the machine slept).
std::uint64_t monotonic_ms();
std::uint64_t boottime_ms();

// What a file descriptor's owner is told, always on the loop's thread.
class FdHandler {
  public:
    virtual ~FdHandler() = default;
    virtual void on_events(std::uint32_t events) = 0;  // EPOLLIN and friends
    // Every kSweepMs from want_sweep() on, until no handler answers true (it still waits for a deadline).
    virtual bool on_sweep(std::uint64_t now_ms) {
        static_cast<void>(now_ms);
        return false;
    }
    // The loop ends while this is still watched: unwatch and let go.
    virtual void on_loop_end() {}
};

class EventLoop {
  public:
    using Task = std::function<void()>;
    using TimerId = std::uint64_t;

    EventLoop();
    ~EventLoop();
    EventLoop(const EventLoop&) = delete;
    EventLoop& operator=(const EventLoop&) = delete;

    void run();            // until stop(); the calling thread becomes the loop's thread
    void stop();           // any thread; tasks already posted run before run() returns
    void post(Task task);  // any thread, in order; runs soon on the loop's thread
    // As post, but false, with the task dropped, once the loop has ended and will run nothing any more.
    bool try_post(Task task);
    bool in_loop() const;

    // Loop thread only. A timer fires once; cancelling one that fired is harmless.
    TimerId call_after(std::uint64_t delay_ms, Task task);
    void cancel(TimerId timer);

    // Loop thread only. The handler must outlive its registration.
    void watch(int fd, std::uint32_t events, FdHandler& handler);
    void change(int fd, std::uint32_t events, FdHandler& handler);
    void unwatch(int fd);

    // Loop thread only. Coarse deadlines for many handlers by one timer: see FdHandler::on_sweep.
    static constexpr std::uint64_t kSweepMs = 250;
    void want_sweep();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// `count` loops, each with a thread named `name`; stops and joins them when destroyed. The threads take no
// signals (Python's handlers run in its main thread) but those that a fault of their own raises.
class LoopThreads {
  public:
    LoopThreads(std::string name, std::size_t count);
    ~LoopThreads();
    void stop();        // idempotent; returns when the threads have ended
    EventLoop& next();  // round robin
    EventLoop& at(std::size_t index);
    std::size_t count() const;

  private:
    std::vector<std::unique_ptr<EventLoop>> loops_;
    std::vector<std::thread> threads_;
    std::atomic<std::size_t> turn_ = 0;
};

}  // namespace mooncake::net
