// Calls for callers that do not wait: carried out in order of arrival by a bounded number of threads, their
// end told through a file descriptor that an event loop can watch.
//
// A call that has begun is never dropped: cancel() interrupts it, and it is done when it has really returned.
// Must not know what a call does; of its caller, only the number it asked under.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "net/file_descriptor.h"

namespace mooncake::net {

class QueuedCall {
  public:
    using Id = std::uint64_t;

    virtual ~QueuedCall() = default;
    explicit QueuedCall(std::uint64_t until_ms) : deadline_ms(until_ms) {}
    // On a thread of the queue. interrupted: to be asked at least every kLookUpMs. What it throws is kept.
    virtual void run(const std::function<bool()>& interrupted) = 0;

    const std::uint64_t deadline_ms;  // of waiting for a thread; run() keeps its own

    Id id() const { return id_; }
    bool is_interrupted() const { return interrupted_.load(std::memory_order_relaxed); }
    bool is_expired() const { return expired_; }                    // once it is done
    const std::exception_ptr& failure() const { return failure_; }  // once it is done

  private:
    friend class CallQueue;

    Id id_ = 0;
    std::atomic<bool> interrupted_ = false;
    bool expired_ = false;
    std::exception_ptr failure_;
};

class CallQueue {
  public:
    using Id = QueuedCall::Id;
    enum class Submitted : std::uint8_t { kTaken, kFull, kClosed };

    // Threads come to be when there is work for them. Throws std::system_error when there is no descriptor.
    CallQueue(std::size_t threads_max, std::size_t waiting_max);
    ~CallQueue();  // closes
    CallQueue(const CallQueue&) = delete;
    CallQueue& operator=(const CallQueue&) = delete;

    // kFull, kClosed: it was not taken.
    Submitted submit(std::shared_ptr<QueuedCall> call);
    // One that is done but has more to do goes before those that wait. false: closed.
    bool resubmit(std::shared_ptr<QueuedCall> call);

    // true: it does not run, never will again, and is told of no more. false: it is interrupted, and done
    // when it has returned.
    bool cancel(Id id);
    void wait(Id id);  // until it does not run
    // Those that still wait for a thread at their deadline are done without having run: is_expired().
    void expire(std::uint64_t now_ms);

    // Readable while calls are done that nobody took.
    int fd() const { return told_.get(); }
    std::vector<std::shared_ptr<QueuedCall>> take_done();

    // Takes no more, interrupts what runs, lets what waits run (it finds its client closed), and returns when
    // all are done. Idempotent, from any thread.
    void close();

  private:
    void run();
    bool start_thread();  // with the lock held
    void tell();

    const std::size_t threads_max_;
    const std::size_t waiting_max_;
    FileDescriptor told_;

    std::mutex mutex_;                  // guards what follows; nothing else is locked under it
    std::condition_variable changed_;   // a call waits, or the end
    std::condition_variable returned_;  // a call is done
    std::deque<std::shared_ptr<QueuedCall>> waiting_;
    std::unordered_map<Id, std::shared_ptr<QueuedCall>> running_;
    std::vector<std::shared_ptr<QueuedCall>> done_;
    std::vector<std::thread> threads_;
    std::size_t idle_ = 0;
    Id last_id_ = 0;
    bool closing_ = false;
    bool joining_ = false;
};

}  // namespace mooncake::net
