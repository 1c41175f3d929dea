// The world that a simulated cluster lives in: one clock, one source of chance, hosts, and threads that run
// one at a time, each until it waits.
//
// Owns time and order: what happens next is drawn from the seed among what may happen now. Knows neither
// sockets (kernel.h) nor what the processes do. The functions of libc that wait (libc.cc) end up here, so the
// product's own threads, locks and loops run unchanged.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "random.h"

namespace simulation {

using Ms = std::uint64_t;
inline constexpr Ms kNever = ~Ms{0};

// Ends the run at once: the property that does not hold, in words. Prints the journal.
[[noreturn]] void violated(const std::string& what);

// A machine: what shares an address and fails together.
struct Host {
    std::uint32_t address = 0;  // 10.0.0.x, in host byte order
    std::string name;
    int index = 0;
    bool is_down = false;     // no process listens; `is_silent` says whether a caller is told so
    bool is_silent = false;   // while down: what is sent to it vanishes
    Ms muted_until = 0;       // what it sends and what is sent to it arrives only after
    bool is_stopped = false;  // as by SIGSTOP: its threads do not run, its sockets stay open
    Ms stopped_until = 0;
    Ms went_on_ms = 0;  // when it was let go on, last
    std::uint64_t stops = 0;
    std::uint32_t slowness = 1;  // factor on the time that its bytes take
};

class WaitList;

// A thread of the simulation: a stack of its own, resumed by the world.
struct Fiber {
    std::uint64_t id = 0;  // as pthread_t
    Host* host = nullptr;
    std::string name;
    std::function<void()> body;
    ucontext_t context{};
    void* stack = nullptr;
    std::uint64_t generation = 0;  // of its waits: an older wake-up is stale
    bool is_waiting = false;
    bool was_woken = false;
    bool is_done = false;
    bool is_detached = false;
    std::unique_ptr<WaitList> joiners;
};

// Who waits for something; whoever changes that thing wakes them.
class WaitList {
  public:
    void add(Fiber* fiber);
    void wake_all();
    void wake_one();
    bool empty() const { return entries_.empty(); }

  private:
    struct Entry {
        Fiber* fiber;
        std::uint64_t generation;
    };
    bool is_stale(const Entry& entry) const;
    std::vector<Entry> entries_;
};

class World {
  public:
    explicit World(std::uint64_t seed);
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    static World* current();  // nullptr outside of a run

    Ms now_ms() const { return now_ms_; }
    std::uint64_t step() const { return step_; }  // how many events there were
    Random& random() { return random_; }

    Host& add_host(std::string name);
    std::deque<Host>& hosts() { return hosts_; }

    Fiber* spawn(Host& host, std::string name, std::function<void()> body);
    Fiber* running() const { return running_; }
    Host& here() const;  // of the running fiber

    // From a fiber. wait: true if woken, false if until_ms came first; the fiber must have been added to the
    // lists it waits on.
    bool wait(Ms until_ms);
    void sleep(Ms delay_ms) { wait(now_ms_ + delay_ms); }
    void wake(Fiber* fiber, std::uint64_t generation);
    void join(Fiber* fiber);
    void exit_fiber();
    Fiber* find(std::uint64_t id);
    void release(Fiber* fiber);  // joined or detached: its id means nothing any more

    // Something that happens later, on no fiber.
    void at(Ms when_ms, std::function<void()> what);

    // One event. False: nothing will ever happen again.
    bool advance();
    // What the last event was of; nullptr for one of the network.
    Host* last_host() const { return last_host_; }

    // As SIGSTOP and SIGCONT do it: no thread of the host runs in between, what would have woken one waits.
    void stop(Host& host, Ms until_ms);
    void go_on(Host& host);

    // Condition variables, by their address.
    WaitList& condition(const void* address) { return conditions_[address]; }
    void forget_condition(const void* address) { conditions_.erase(address); }

  private:
    struct Event {
        Ms at_ms = 0;
        std::uint64_t order = 0;
        std::uint64_t sequence = 0;
        Fiber* fiber = nullptr;
        std::uint64_t generation = 0;
        std::function<void()> what;
        bool operator>(const Event& other) const {
            if (at_ms != other.at_ms) return at_ms > other.at_ms;
            if (order != other.order) return order > other.order;
            return sequence > other.sequence;
        }
    };
    void push(Event event);
    void resume(Fiber* fiber);
    static void enter(unsigned high, unsigned low);

    Random random_;
    Ms now_ms_ = 0;
    std::uint64_t step_ = 0;
    std::uint64_t sequence_ = 0;
    std::uint64_t events_this_ms_ = 0;
    std::uint64_t last_fiber_id_ = 1;
    std::deque<Host> hosts_;
    std::map<std::uint64_t, std::unique_ptr<Fiber>> fibers_;
    std::vector<Event> events_;  // heap, the earliest on top
    std::vector<Event> held_;    // of stopped hosts
    std::map<const void*, WaitList> conditions_;
    Fiber* running_ = nullptr;
    Host* last_host_ = nullptr;
    ucontext_t scheduler_{};
};

}  // namespace simulation
