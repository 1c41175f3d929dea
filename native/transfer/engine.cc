#include "transfer/engine.h"

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <unordered_map>

#include "net/event_loop.h"
#include "net/random.h"

namespace mooncake::transfer {

using wire::MemoryRange;
using wire::Status;

namespace {

wire::Verb verb_of(Direction direction) {
    return direction == Direction::kRead ? wire::Verb::kTransferRead : wire::Verb::kTransferWrite;
}

// This side's pieces, those that follow each other as one.
std::vector<MemoryRange> local_ranges(std::span<const Item> items) {
    std::vector<MemoryRange> ranges;
    for (const Item& item : items) {
        if (item.length == 0) continue;
        if (!ranges.empty() && ranges.back().address + ranges.back().length == item.local) {
            ranges.back().length += item.length;
        } else {
            ranges.push_back({item.local, item.length});
        }
    }
    return ranges;
}

// One transfer's hold on this process's own memory, and whether that is wanted back.
class OwnMemory {
  public:
    OwnMemory(Registry& registry, std::span<const Item> items, std::string& why)
        : hold_(registry.hold_own(local_ranges(items), [flag = wanted_] { flag->store(true); }, why)) {}
    bool is_held() const { return hold_ != nullptr; }
    bool is_wanted_back() const { return wanted_->load(std::memory_order_relaxed); }

  private:
    const std::shared_ptr<std::atomic<bool>> wanted_ = std::make_shared<std::atomic<bool>>(false);
    const Registry::HoldPtr hold_;
};

Plan plan_of(std::span<const Item> items) { return Plan(items, kStreamsMax); }

CallResult unsound() { return {Status::kInvalidParams, "lengths and addresses that no memory has"}; }

}  // namespace

// ---- batches that nobody waits for

struct Engine::Outcomes {
    struct Entry {
        Outcome outcome = Outcome::kPending;
        std::string why;
    };

    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::unordered_map<BatchId, Entry> entries;
    std::deque<BatchId> finished;  // the oldest first
    BatchId last_id = 0;

    BatchId begin() {
        const std::lock_guard lock(mutex);
        entries.emplace(++last_id, Entry{});
        return last_id;
    }
    void forget(BatchId id) {
        const std::lock_guard lock(mutex);
        entries.erase(id);
    }
    void finish(BatchId id, const CallResult& result) {
        {
            const std::lock_guard lock(mutex);
            Entry& entry = entries[id];
            entry.outcome = wire::ok(result.status) ? Outcome::kDone
                            : result.is_late()      ? Outcome::kLate
                                                    : Outcome::kFailed;
            entry.why = result.why;
            finished.push_back(id);
            if (finished.size() > kOutcomesMax) {
                entries.erase(finished.front());
                finished.pop_front();
            }
        }
        changed.notify_all();
    }
};

class Engine::Batch final : public net::QueuedCall {
  public:
    Batch(Engine& engine, std::shared_ptr<Peer> peer, Direction direction, std::vector<Item> items,
          std::unique_ptr<OwnMemory> own, BatchId id, std::uint64_t until_ms)
        : QueuedCall(until_ms),
          engine_(engine),
          peer_(std::move(peer)),
          verb_(verb_of(direction)),
          items_(std::move(items)),
          own_(std::move(own)),
          batch_(id) {}

    void run(const std::function<bool()>& interrupted) override {
        CallResult result;
        if (!engine_.refuses(result)) {
            Call call(peer_, engine_.settings_,
                      {deadline_ms,
                       [&] { return interrupted() || engine_.is_stopped() || own_->is_wanted_back(); }});
            Plan plan = plan_of(items_);
            result = call.transfer(verb_, plan);
        }
        own_.reset();
        engine_.outcomes_->finish(batch_, result);
    }

  private:
    Engine& engine_;
    const std::shared_ptr<Peer> peer_;
    const wire::Verb verb_;
    const std::vector<Item> items_;
    std::unique_ptr<OwnMemory> own_;
    const BatchId batch_;
};

// ---- beginning and ending

void Engine::Free::operator()(std::uint8_t* memory) const { std::free(memory); }

Engine::Engine(EngineOptions options)
    : options_(std::move(options)),
      served_(std::make_shared<Served>()),
      peers_(std::make_unique<Peers>(options_.connections_a_peer_max)),
      outcomes_(std::make_unique<Outcomes>()),
      batches_(std::make_unique<net::CallQueue>(options_.batch_threads, kBatchesWaitingMax)),
      loops_(std::make_unique<net::LoopThreads>("mc-transfer", options_.threads)) {
    served_->process = net::random_uuid();
    served_->software = options_.software;
    settings_.hello.role = wire::Role::kEngine;
    settings_.hello.process = served_->process;
    settings_.hello.software = served_->software;
    settings_.connect_timeout_ms = options_.connect_timeout_ms;
    settings_.stall_timeout_ms = options_.stall_timeout_ms;
    net::Server::Options listen;
    listen.host = options_.host;
    listen.port = options_.port;
    listen.connections_max = options_.connections_max;
    listen.limits = engine_limits();
    server_ = std::make_unique<net::Server>(*loops_, listen,
                                            [served = served_] { return engine_connection(served); });
    port_ = server_->port();
}

Engine::~Engine() {
    if (!is_forked()) {
        stop();
        return;
    }
    // The threads are the parent's; so is what the locks guard. The child leaves it all alone.
    (void)server_.release();
    (void)loops_.release();
    (void)batches_.release();
    (void)peers_.release();
}

void Engine::stop() {
    if (is_forked()) return;
    is_stopped_.store(true, std::memory_order_relaxed);
    batches_->close();
    server_->stop();
    loops_->stop();
    peers_->close_idle();
}

bool Engine::refuses(CallResult& result) const {
    if (is_forked()) {
        result = {Status::kClosed, "the engine was made before a fork; this process must make its own"};
        return true;
    }
    if (is_stopped()) result = {Status::kClosed, "the engine is closed"};
    return is_stopped();
}

// ---- memory

Status Engine::add(MemoryRange range, std::string& why) {
    if (CallResult refusal; refuses(refusal)) return why = refusal.why, refusal.status;
    return served_->registry->add(range, RangeKind::kRegistered, why);
}

Status Engine::withdraw(std::uint64_t address, std::string& why) {
    if (CallResult refusal; refuses(refusal)) return why = refusal.why, refusal.status;
    return served_->registry->withdraw(address, RangeKind::kRegistered, why);
}

std::uint64_t Engine::lend(std::uint64_t length, std::string& why) {
    if (CallResult refusal; refuses(refusal)) return why = refusal.why, 0;
    length = std::max<std::uint64_t>(length, 1);
    // Zeroed: what this process had there before is no business of a peer's.
    std::unique_ptr<std::uint8_t, Free> memory(static_cast<std::uint8_t*>(std::calloc(length, 1)));
    if (!memory) {
        why = "no memory for " + std::to_string(length) + " bytes";
        return 0;
    }
    const auto address = reinterpret_cast<std::uint64_t>(memory.get());
    if (!wire::ok(served_->registry->add({address, length}, RangeKind::kManaged, why))) return 0;
    const std::lock_guard lock(lent_mutex_);
    lent_[address] = std::move(memory);
    return address;
}

Status Engine::give_back(std::uint64_t address, std::string& why) {
    if (CallResult refusal; refuses(refusal)) return why = refusal.why, refusal.status;
    const Status status = served_->registry->withdraw(address, RangeKind::kManaged, why);
    // Else somebody may write to it still.
    if (!wire::ok(status)) return status;
    const std::lock_guard lock(lent_mutex_);
    lent_.erase(address);
    return status;
}

// ---- calls

net::Patience Engine::patience(std::uint64_t bytes, GivenUp given_up) const {
    const std::uint64_t timeout_ms = options_.transfer_timeout_ms + bytes / (kBytesASecondMin / 1'000);
    return {net::monotonic_ms() + timeout_ms,
            [this, given_up = std::move(given_up)] { return is_stopped() || (given_up && given_up()); }};
}

CallResult Engine::transfer(const net::Endpoint& peer, Direction direction, std::span<const Item> items,
                            const std::optional<ReceivedNotice>& notice, const GivenUp& given_up) {
    CallResult result;
    if (refuses(result)) return result;
    Plan plan = plan_of(items);
    if (!plan.is_sound()) return unsound();
    if (notice && notice->name.size() + notice->message.size() > wire::kNoticeBytesMax) {
        return {Status::kInvalidParams,
                "a notice has at most " + std::to_string(wire::kNoticeBytesMax) + " bytes"};
    }
    std::string why;
    const OwnMemory own(*served_->registry, items, why);
    if (!own.is_held()) return {Status::kInvalidParams, why};
    Call call(peers_->find(peer), settings_,
              patience(plan.total_bytes(), [&] { return own.is_wanted_back() || (given_up && given_up()); }));
    result = call.transfer(verb_of(direction), plan);
    if (!wire::ok(result.status) || !notice) return result;
    wire::Buffer body;
    wire::Writer writer(body);
    wire::encode(wire::Notice{notice->name, notice->message}, writer);
    wire::Buffer answer;
    return call.ask(wire::Verb::kNotify, body, answer);
}

Engine::BatchId Engine::submit(const net::Endpoint& peer, Direction direction, std::vector<Item> items,
                               const GivenUp& given_up, CallResult& result) {
    if (refuses(result)) return 0;
    const Plan plan = plan_of(items);
    if (!plan.is_sound()) {
        result = unsound();
        return 0;
    }
    std::string why;
    auto own = std::make_unique<OwnMemory>(*served_->registry, items, why);
    if (!own->is_held()) {
        result = {Status::kInvalidParams, why};
        return 0;
    }
    auto known = peers_->find(peer);
    const net::Patience patient = patience(plan.total_bytes(), given_up);
    result = Call(known, settings_, patient).reach();
    if (!wire::ok(result.status)) return 0;
    const BatchId id = outcomes_->begin();
    (void)batches_->take_done();
    const auto submitted = batches_->submit(std::make_shared<Batch>(
        *this, std::move(known), direction, std::move(items), std::move(own), id, patient.deadline_ms));
    if (submitted == net::CallQueue::Submitted::kTaken) return id;
    outcomes_->forget(id);
    result = {Status::kBusy, "more than " + std::to_string(kBatchesWaitingMax) + " batches wait"};
    return 0;
}

Outcome Engine::outcome(BatchId batch, std::string& why) {
    if (is_forked()) return Outcome::kUnknown;
    const std::lock_guard lock(outcomes_->mutex);
    const auto found = outcomes_->entries.find(batch);
    if (found == outcomes_->entries.end()) return Outcome::kUnknown;
    why = found->second.why;
    return found->second.outcome;
}

void Engine::wait(std::span<const BatchId> batches, const GivenUp& given_up) {
    if (is_forked()) return;
    std::unique_lock lock(outcomes_->mutex);
    for (const BatchId batch : batches) {
        const auto is_over = [&] {
            const auto found = outcomes_->entries.find(batch);
            return found == outcomes_->entries.end() || found->second.outcome != Outcome::kPending;
        };
        while (!outcomes_->changed.wait_for(lock, std::chrono::milliseconds(net::kLookUpMs), is_over)) {
            lock.unlock();
            const bool is_enough = given_up && given_up();
            lock.lock();
            if (is_enough) return;
        }
    }
}

CallResult Engine::question(const net::Endpoint& peer, wire::Verb verb, const GivenUp& given_up,
                            wire::Buffer& answer) {
    CallResult result;
    if (refuses(result)) return result;
    const auto known = peers_->find(peer);
    known->forget();  // who asks takes whoever is there
    return Call(known, settings_, patience(0, given_up)).ask(verb, {}, answer);
}

CallResult Engine::first_buffer(const net::Endpoint& peer, const GivenUp& given_up, MemoryRange& range) {
    wire::Buffer answer;
    CallResult result = question(peer, wire::Verb::kFirstBuffer, given_up, answer);
    if (!wire::ok(result.status)) return result;
    const auto parsed = wire::parse_memory_range(answer);
    if (!parsed) return {Status::kMalformed, net::to_text(peer) + " answered what is no range"};
    range = *parsed;
    return result;
}

CallResult Engine::ping(const net::Endpoint& peer, const GivenUp& given_up) {
    wire::Buffer answer;
    return question(peer, wire::Verb::kPing, given_up, answer);
}

std::vector<std::pair<std::string, std::uint64_t>> Engine::stats() const {
    const auto value = [](const std::atomic<std::uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    const ServerCounters& counters = served_->counters;
    return {{"connections_count", server_->connection_count()},
            {"registered_count", served_->registry->size()},
            {"read_bytes_total", value(counters.read_bytes_total)},
            {"written_bytes_total", value(counters.written_bytes_total)},
            {"refused_total", value(counters.refused_total)},
            {"malformed_total", value(counters.malformed_total)}};
}

}  // namespace mooncake::transfer
