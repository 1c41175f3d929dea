// One epoll loop and its thread, and a fixed set of them. Everything that belongs to a loop (connections,
// timers) is touched only by its thread; other threads reach it through post().
//
// Knows nothing of frames, masters or nodes.
#pragma once

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

// What a file descriptor's owner is told; events are EPOLLIN and friends. Called on the loop's thread.
class FdHandler {
  public:
    virtual ~FdHandler() = default;
    virtual void on_events(std::uint32_t events) = 0;
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
    bool in_loop() const;

    // Loop thread only. A timer fires once; cancelling one that fired is harmless.
    TimerId call_after(std::uint64_t delay_ms, Task task);
    void cancel(TimerId timer);

    // Loop thread only. The handler must outlive its registration.
    void watch(int fd, std::uint32_t events, FdHandler& handler);
    void change(int fd, std::uint32_t events, FdHandler& handler);
    void unwatch(int fd);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// `count` loops, each with a thread named `name`; stops and joins them when destroyed.
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
    std::size_t turn_ = 0;
};

}  // namespace mooncake::net
