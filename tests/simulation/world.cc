#include "world.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace simulation {

namespace {

constexpr std::size_t kStackBytes = 256u << 10;
// So many events without time passing are threads that wake each other for ever.
constexpr std::uint64_t kEventsAMsMax = 1'000'000;

World* g_world = nullptr;

// Stacks are used again by later worlds.
std::vector<void*>& free_stacks() {
    static std::vector<void*> stacks;
    return stacks;
}

void* take_stack() {
    auto& stacks = free_stacks();
    if (!stacks.empty()) {
        void* stack = stacks.back();
        stacks.pop_back();
        return stack;
    }
    void* stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    assert(stack != MAP_FAILED);
    ::mprotect(stack, 4096, PROT_NONE);
    return stack;
}

}  // namespace

bool WaitList::is_stale(const Entry& entry) const {
    return !entry.fiber->is_waiting || entry.fiber->generation != entry.generation;
}

// Fibers outlive the lists' entries: World keeps finished ones until it ends.
void WaitList::add(Fiber* fiber) {
    if (entries_.size() >= 8) {
        std::erase_if(entries_, [this](const Entry& entry) { return is_stale(entry); });
    }
    entries_.push_back({fiber, fiber->generation + 1});  // of the wait that comes
}

void WaitList::wake_all() {
    for (const Entry& entry : std::exchange(entries_, {})) {
        if (!is_stale(entry)) World::current()->wake(entry.fiber, entry.generation);
    }
}

void WaitList::wake_one() {
    while (!entries_.empty()) {
        const Entry entry = entries_.front();
        entries_.erase(entries_.begin());
        if (is_stale(entry)) continue;
        World::current()->wake(entry.fiber, entry.generation);
        return;
    }
}

World::World(std::uint64_t seed) : random_(seed) {
    assert(g_world == nullptr);
    g_world = this;
}

World::~World() {
    for (const auto& [id, fiber] : fibers_) {
        if (fiber->stack != nullptr && fiber->is_done) free_stacks().push_back(fiber->stack);
    }
    g_world = nullptr;
}

World* World::current() { return g_world; }

Host& World::add_host(std::string name) {
    const int index = static_cast<int>(hosts_.size());
    hosts_.emplace_back();
    hosts_.back().name = std::move(name);
    hosts_.back().index = index;
    hosts_.back().address = 0x0A000001U + static_cast<std::uint32_t>(index);
    return hosts_.back();
}

Host& World::here() const {
    assert(running_ != nullptr);
    return *running_->host;
}

Fiber* World::spawn(Host& host, std::string name, std::function<void()> body) {
    auto fiber = std::make_unique<Fiber>();
    fiber->id = ++last_fiber_id_;
    fiber->host = &host;
    fiber->name = std::move(name);
    fiber->body = std::move(body);
    fiber->stack = take_stack();
    fiber->joiners = std::make_unique<WaitList>();
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = kStackBytes;
    fiber->context.uc_link = nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(fiber.get());
    makecontext(&fiber->context, reinterpret_cast<void (*)()>(&World::enter), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address & 0xFFFFFFFF));
    Fiber* made = fiber.get();
    fibers_.emplace(made->id, std::move(fiber));
    made->is_waiting = true;
    ++made->generation;
    wake(made, made->generation);
    return made;
}

void World::enter(unsigned high, unsigned low) {
    const auto address = (std::uintptr_t{high} << 32) | low;
    auto* fiber = reinterpret_cast<Fiber*>(address);
    fiber->body();
    fiber->body = nullptr;
    g_world->exit_fiber();
}

void World::exit_fiber() {
    Fiber* fiber = running_;
    fiber->is_done = true;
    fiber->joiners->wake_all();
    swapcontext(&fiber->context, &scheduler_);
    assert(false);
}

Fiber* World::find(std::uint64_t id) {
    const auto found = fibers_.find(id);
    return found == fibers_.end() ? nullptr : found->second.get();
}

void World::release(Fiber* fiber) { fiber->is_detached = true; }

void World::push(Event event) {
    event.sequence = ++sequence_;
    events_.push_back(std::move(event));
    std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

void World::at(Ms when_ms, std::function<void()> what) {
    Event event;
    event.at_ms = std::max(when_ms, now_ms_);
    event.order = random_.next() >> 32;
    event.what = std::move(what);
    push(std::move(event));
}

void World::wake(Fiber* fiber, std::uint64_t generation) {
    if (!fiber->is_waiting || fiber->generation != generation || fiber->was_woken) return;
    fiber->was_woken = true;
    Event event;
    event.at_ms = now_ms_;
    event.order = random_.next() >> 32;
    event.fiber = fiber;
    event.generation = generation;
    push(std::move(event));
}

bool World::wait(Ms until_ms) {
    Fiber* fiber = running_;
    assert(fiber != nullptr);
    fiber->is_waiting = true;
    fiber->was_woken = false;
    ++fiber->generation;
    if (until_ms != kNever) {
        Event event;
        event.at_ms = std::max(until_ms, now_ms_);
        event.order = random_.next() >> 32;
        event.fiber = fiber;
        event.generation = fiber->generation;
        push(std::move(event));
    }
    swapcontext(&fiber->context, &scheduler_);
    return fiber->was_woken;
}

void World::join(Fiber* fiber) {
    while (!fiber->is_done) {
        fiber->joiners->add(running_);
        wait(kNever);
    }
    release(fiber);
}

void World::resume(Fiber* fiber) {
    fiber->is_waiting = false;
    running_ = fiber;
    swapcontext(&scheduler_, &fiber->context);
    running_ = nullptr;
    if (!fiber->is_done || fiber->stack == nullptr) return;
    free_stacks().push_back(std::exchange(fiber->stack, nullptr));
}

void World::stop(Host& host, Ms until_ms) {
    host.is_stopped = true;
    ++host.stops;
    host.stopped_until = until_ms;
    at(until_ms, [this, &host] {
        if (now_ms_ >= host.stopped_until) go_on(host);
    });
}

void World::go_on(Host& host) {
    if (!host.is_stopped) return;
    host.is_stopped = false;
    host.went_on_ms = now_ms_;
    for (Event& event : std::exchange(held_, {})) {
        if (event.fiber->host != &host) {
            held_.push_back(std::move(event));
            continue;
        }
        event.at_ms = now_ms_;
        event.order = random_.next() >> 32;
        push(std::move(event));
    }
}

bool World::advance() {
    while (!events_.empty()) {
        std::pop_heap(events_.begin(), events_.end(), std::greater<>());
        Event event = std::move(events_.back());
        events_.pop_back();
        Fiber* fiber = event.fiber;
        if (fiber != nullptr && (!fiber->is_waiting || fiber->generation != event.generation)) continue;
        if (event.at_ms > now_ms_) {
            now_ms_ = event.at_ms;
            events_this_ms_ = 0;
        }
        if (fiber != nullptr && fiber->host->is_stopped) {
            held_.push_back(std::move(event));
            continue;
        }
        if (++events_this_ms_ > kEventsAMsMax) violated("threads wake each other without end");
        ++step_;
        last_host_ = fiber != nullptr ? fiber->host : nullptr;
        if (fiber != nullptr) {
            resume(fiber);
        } else {
            event.what();
        }
        return true;
    }
    return false;
}

}  // namespace simulation
