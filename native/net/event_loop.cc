#include "net/event_loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "net/file_descriptor.h"
#include "net/signals_blocked.h"

namespace mooncake::net {

namespace {

// Tasks that keep posting tasks cannot hold up the end of a loop for longer than this many rounds.
constexpr int kFinalRoundsMax = 64;
constexpr std::size_t kEventsABatch = 256;
constexpr std::uint64_t kWakeTag = ~std::uint64_t{0};

std::uint64_t read_clock_ms(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
           static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

[[noreturn]] void raise(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

std::uint64_t monotonic_ms() { return read_clock_ms(CLOCK_MONOTONIC); }
std::uint64_t boottime_ms() { return read_clock_ms(CLOCK_BOOTTIME); }

struct EventLoop::State {
    struct Watch {
        FdHandler* handler = nullptr;
        std::uint32_t generation =
            0;  // tells an event of this registration from one of an earlier owner of fd
    };
    struct Timer {
        std::uint64_t deadline_ms;
        TimerId id;
        bool operator>(const Timer& other) const {
            return std::pair(deadline_ms, id) > std::pair(other.deadline_ms, other.id);
        }
    };

    FileDescriptor epoll;
    FileDescriptor wake;
    std::atomic<std::thread::id> thread;
    std::atomic<bool> stopping = false;

    std::mutex mutex;  // guards the three below; no other lock is taken under it
    std::vector<Task> posted;
    bool awake = false;  // the loop will look at `posted` before it waits again
    bool ended = false;

    std::vector<Watch> watches;  // by fd
    std::uint32_t generation = 0;
    std::vector<Timer> heap;  // earliest first; an id without a task was cancelled
    std::unordered_map<TimerId, Task> tasks;
    TimerId last_timer = 0;
    bool sweep_armed = false;

    void run_posted();
    void run_timers();
    void dispatch();
    void finish();
    int wait_ms();
    void signal() {
        const std::uint64_t one = 1;
        // Only a full counter can refuse it, and then the loop wakes anyway.
        [[maybe_unused]] const auto written = ::write(wake.get(), &one, sizeof one);
    }
    static std::uint64_t tag(int fd, std::uint32_t generation) {
        return std::uint64_t{generation} << 32 | static_cast<std::uint32_t>(fd);
    }
};

EventLoop::EventLoop() : state_(std::make_unique<State>()) {
    state_->epoll.reset(epoll_create1(EPOLL_CLOEXEC));
    if (!state_->epoll) raise("epoll_create1");
    state_->wake.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!state_->wake) raise("eventfd");
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kWakeTag;
    if (epoll_ctl(state_->epoll.get(), EPOLL_CTL_ADD, state_->wake.get(), &event) != 0) raise("epoll_ctl");
}

EventLoop::~EventLoop() = default;

void EventLoop::run() {
    state_->thread = std::this_thread::get_id();
    while (!state_->stopping) {
        state_->run_posted();
        state_->run_timers();
        if (state_->stopping) break;
        state_->dispatch();
    }
    state_->finish();
    state_->thread = std::thread::id();
}

void EventLoop::stop() {
    state_->stopping = true;
    state_->signal();
}

void EventLoop::post(Task task) { try_post(std::move(task)); }

bool EventLoop::try_post(Task task) {
    bool wake;
    {
        const std::lock_guard lock(state_->mutex);
        if (state_->ended) return false;
        state_->posted.push_back(std::move(task));
        wake = !std::exchange(state_->awake, true);
    }
    if (wake && !in_loop()) state_->signal();
    return true;
}

bool EventLoop::in_loop() const { return state_->thread.load() == std::this_thread::get_id(); }

EventLoop::TimerId EventLoop::call_after(std::uint64_t delay_ms, Task task) {
    assert(in_loop());
    const TimerId id = ++state_->last_timer;
    state_->tasks.emplace(id, std::move(task));
    state_->heap.push_back({monotonic_ms() + delay_ms, id});
    std::push_heap(state_->heap.begin(), state_->heap.end(), std::greater<>());
    return id;
}

void EventLoop::cancel(TimerId timer) {
    assert(in_loop());
    state_->tasks.erase(timer);
    // Cancelled entries leave when their time comes, or here once they outnumber the others.
    if (state_->heap.size() > 2 * state_->tasks.size() + 64) {
        std::erase_if(state_->heap, [&](const auto& entry) { return !state_->tasks.contains(entry.id); });
        std::make_heap(state_->heap.begin(), state_->heap.end(), std::greater<>());
    }
}

void EventLoop::watch(int fd, std::uint32_t events, FdHandler& handler) {
    assert(in_loop() && fd >= 0);
    const auto index = static_cast<std::size_t>(fd);
    if (index >= state_->watches.size()) state_->watches.resize(index + 1);
    state_->watches[index] = {&handler, ++state_->generation};
    epoll_event event{};
    event.events = events;
    event.data.u64 = State::tag(fd, state_->generation);
    if (epoll_ctl(state_->epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
        state_->watches[index] = {};
        raise("epoll_ctl");
    }
}

void EventLoop::change(int fd, std::uint32_t events, FdHandler& handler) {
    assert(in_loop());
    auto& watch = state_->watches.at(static_cast<std::size_t>(fd));
    watch.handler = &handler;
    epoll_event event{};
    event.events = events;
    event.data.u64 = State::tag(fd, watch.generation);
    if (epoll_ctl(state_->epoll.get(), EPOLL_CTL_MOD, fd, &event) != 0) raise("epoll_ctl");
}

void EventLoop::unwatch(int fd) {
    assert(in_loop());
    state_->watches.at(static_cast<std::size_t>(fd)) = {};
    epoll_ctl(state_->epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::want_sweep() {
    if (std::exchange(state_->sweep_armed, true)) return;
    call_after(kSweepMs, [state = state_.get(), this] {
        state->sweep_armed = false;
        bool again = false;
        const std::uint64_t now_ms = monotonic_ms();
        for (std::size_t fd = 0; fd < state->watches.size(); ++fd) {
            if (FdHandler* handler = state->watches[fd].handler; handler != nullptr) {
                again |= handler->on_sweep(now_ms);
            }
        }
        if (again) want_sweep();
    });
}

void EventLoop::State::run_posted() {
    std::vector<Task> now;
    {
        const std::lock_guard lock(mutex);
        now.swap(posted);
        awake = true;  // those that run now may post more; we look again before we wait
    }
    for (Task& task : now) {
        task();
        task = nullptr;  // what it holds ends here, in order
    }
}

void EventLoop::State::run_timers() {
    if (heap.empty()) return;
    const std::uint64_t now_ms = monotonic_ms();
    // Timers set while these run wait for the next round, even with a delay of zero.
    const TimerId newest = last_timer;
    while (!heap.empty() && heap.front().deadline_ms <= now_ms && heap.front().id <= newest) {
        const TimerId id = heap.front().id;
        std::pop_heap(heap.begin(), heap.end(), std::greater<>());
        heap.pop_back();
        if (auto node = tasks.extract(id); !node.empty()) node.mapped()();
    }
}

// How long epoll may wait, in its own terms.
int EventLoop::State::wait_ms() {
    {
        const std::lock_guard lock(mutex);
        if (!posted.empty()) return 0;
        awake = false;  // from here on a post must wake us
    }
    if (heap.empty()) return -1;
    const std::uint64_t now_ms = monotonic_ms();
    if (heap.front().deadline_ms <= now_ms) return 0;
    return static_cast<int>(std::min<std::uint64_t>(heap.front().deadline_ms - now_ms, 3'600'000));
}

void EventLoop::State::dispatch() {
    std::array<epoll_event, kEventsABatch> events;
    const int timeout = wait_ms();
    const int count = epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), timeout);
    {
        const std::lock_guard lock(mutex);
        awake = true;
    }
    for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.u64 == kWakeTag) {
            std::uint64_t ignored;
            [[maybe_unused]] const auto n = ::read(wake.get(), &ignored, sizeof ignored);
            continue;
        }
        const auto fd = static_cast<std::size_t>(event.data.u64 & 0xFFFFFFFF);
        const Watch watch = watches[fd];
        // A handler earlier in this batch may have unwatched this one, or closed it and opened another.
        if (watch.handler == nullptr ||
            watch.generation != static_cast<std::uint32_t>(event.data.u64 >> 32)) {
            continue;
        }
        watch.handler->on_events(event.events);
    }
}

// Runs what was posted, tells every handler, and only then refuses further posts: nothing is left behind.
void EventLoop::State::finish() {
    for (int round = 0;; ++round) {
        run_posted();
        for (std::size_t fd = 0; fd < watches.size(); ++fd) {
            if (FdHandler* handler = watches[fd].handler; handler != nullptr) handler->on_loop_end();
        }
        const std::lock_guard lock(mutex);
        if (posted.empty() || round == kFinalRoundsMax) {
            ended = true;
            break;
        }
    }
    run_posted();
}

LoopThreads::LoopThreads(std::string name, std::size_t count) {
    assert(count > 0);
    for (std::size_t i = 0; i < count; ++i) loops_.push_back(std::make_unique<EventLoop>());
    const SignalsBlocked blocked;
    const auto start_thread = [&](std::size_t i) {
        // The kernel keeps 15 characters of a thread's name.
        const std::string suffix = count > 1 ? "-" + std::to_string(i) : "";
        const std::string label = name.substr(0, 15 - std::min<std::size_t>(suffix.size(), 15)) + suffix;
        threads_.emplace_back([loop = loops_[i].get()]() noexcept { loop->run(); });
        pthread_setname_np(threads_.back().native_handle(), label.c_str());
    };
    try {
        for (std::size_t i = 0; i < count; ++i) start_thread(i);
    } catch (...) {  // no more threads to be had: end those that run
        stop();
        throw;
    }
}

LoopThreads::~LoopThreads() { stop(); }

void LoopThreads::stop() {
    for (const auto& loop : loops_) {
        assert(!loop->in_loop());
        loop->stop();
    }
    for (std::thread& thread : threads_) {
        if (thread.joinable()) thread.join();
    }
}

EventLoop& LoopThreads::next() { return *loops_[turn_++ % loops_.size()]; }
EventLoop& LoopThreads::at(std::size_t index) { return *loops_.at(index); }
std::size_t LoopThreads::count() const { return loops_.size(); }

}  // namespace mooncake::net
