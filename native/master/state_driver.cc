#include "master/state_driver.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "master/state_driver_parts.h"

namespace mooncake::master {

namespace {

using wire::Status;
using wire::Verb;

// Parked calls that one tick gives up: each may be a put_start of a whole batch.
constexpr std::size_t kExpiredATickMax = 64;
// Long enough for a woken thread to reach the lock on another core, short beside a step of 1,000 keys.
constexpr std::chrono::microseconds kGiveWay{20};

std::uint64_t steady_us() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(since).count());
}

wire::Buffer text_body(std::string_view text) {
    // Not text16 into an empty buffer: of a constant text GCC 12 takes that for an overflow.
    const auto length = static_cast<std::uint16_t>(text.size());
    wire::Buffer body(sizeof(length) + text.size());
    wire::Writer(body).patch(0, length);
    std::copy(text.begin(), text.end(), body.begin() + sizeof(length));
    return body;
}

// Places are remembered until a remove may be answered without the word of a node. Two periods of the clock:
// one for its reading's age, one for the drift between this machine's clock and a reader's.
constexpr std::uint64_t kMarginMs = 2 * kClockPeriodMs;

metadata::Options remembered(metadata::Options metadata, const DriverOptions& options) {
    const auto ttl_ms =
        options.remove_confirm_timeout_ms - std::min(options.remove_confirm_timeout_ms, kMarginMs);
    metadata.location_ttl_ms = std::min(ttl_ms, wire::kLocationTtlMsMax);
    return metadata;
}

}  // namespace

std::size_t StateDriver::RequestIdHash::operator()(const RequestId& id) const {
    return static_cast<std::size_t>((id.session * 0x9E3779B97F4A7C15ULL) ^ id.sequence);
}

StateDriver::StateDriver(const metadata::Options& metadata, const DriverOptions& options, std::uint64_t epoch,
                         const wire::Uuid& master, std::uint64_t seed, const BoundedClock& clock)
    : options_(options),
      command_timeout_ms_(metadata.client_ttl_ms),
      keys_a_step_max_(std::max<std::size_t>(1, metadata.keys_a_step_max)),
      clock_(clock),
      epoch_(epoch),
      started_ms_(steady_ms()),
      remembered_ms_(std::min(options.remove_confirm_timeout_ms, wire::kLocationTtlMsMax + kMarginMs)),
      metadata_(remembered(metadata, options), epoch, master, seed) {}

StateDriver::~StateDriver() { stop(); }

std::uint64_t StateDriver::steady_ms() const {
    return options_.steady_ms ? options_.steady_ms() : steady_us() / 1'000;
}

bool StateDriver::is_term_over() const {
    const auto until_ms = serve_until_ms_.load(std::memory_order_acquire);
    if (until_ms == ~std::uint64_t{0}) return false;
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000 +
               static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000 >=
           until_ms;
}

// ---- entry points: each takes the lock for one bounded step at a time, then carries out what came of it
// ----

void StateDriver::submit(Verb verb, wire::Bytes body, const LinkPtr& link, Completion done) {
    auto call = std::make_shared<Call>();
    call->command = metadata::Metadata::command(verb, body);
    call->link = link;
    call->request_bytes = body.size();
    call->askers.push_back({std::move(done), steady_us()});
    Outbox outbox;
    if (call->command.done()) {  // malformed: nothing to ask the state machine
        outbox.answers.push_back(
            {verb, call->command.status(), call->command.take_body(), std::move(call->askers)});
    } else if (verb != Verb::kStats && verb != Verb::kInspect && is_term_over()) {
        after_term_total_.fetch_add(1, std::memory_order_relaxed);
        outbox.answers.push_back({verb, Status::kStaleEpoch,
                                  text_body("this master stepped down: its term is over"),
                                  std::move(call->askers)});
    } else if (const auto mount = verb == Verb::kMount ? mount_to_check(*call, body) : std::nullopt) {
        call->was_held_up = true;
        return check_mount_(
            *mount, [this, call](Status status, const std::string& why) { dialled_back(call, status, why); });
    } else {
        advance(call, outbox);
    }
    carry_out(outbox);
}

void StateDriver::link_closed(const LinkPtr& link) {
    Outbox outbox;
    {
        const std::lock_guard guard(lock_);
        if (link->is_closed) return;
        link->is_closed = true;
        const std::vector<wire::SessionId> sessions = link->sessions;
        for (const auto session : sessions) {
            const LinkPtr* before = node_link(session);
            const bool carried_commands = before != nullptr && *before == link;
            detach(link, session);
            if (!links_of_.contains(session)) metadata_.session_detached(session, clock_.now_ms());
            if (!carried_commands) continue;
            queues_.reconnected(session);
            want_commands(session, outbox);
        }
    }
    carry_out(outbox);
}

bool StateDriver::retire_answered(const LinkPtr& link, Status status, wire::Bytes body) {
    if (!wire::ok(status)) {
        {
            const std::lock_guard guard(lock_);
            ++retires_refused_total_;
        }
        link->close(std::string("it refused a retire command: ") + wire::status_name(status));
        return true;
    }
    const auto reply = wire::parse_retire_reply(body);
    if (!reply) return false;
    Outbox outbox;
    std::vector<wire::ReplicaId> replicas;
    wire::SessionId node = 0;
    {
        const std::lock_guard guard(lock_);
        for (const auto session : link->sessions) {
            const LinkPtr* current = node_link(session);
            if (current == nullptr || *current != link) continue;
            auto confirmed = queues_.confirmed(session, reply->command_id);
            want_commands(session, outbox);
            if (!confirmed) continue;
            node = session;
            replicas = std::move(*confirmed);
            break;
        }
        for (const auto replica : replicas) replica_confirmed(replica, outbox);
    }
    // A node speaks for its own replicas only: what the command did not name is not believed.
    std::sort(replicas.begin(), replicas.end());
    std::vector<wire::ReplicaId> freed;
    std::copy_if(reply->freed.begin(), reply->freed.end(), std::back_inserter(freed),
                 [&](auto id) { return std::binary_search(replicas.begin(), replicas.end(), id); });
    for (std::size_t at = 0; node != 0;) {
        const std::lock_guard guard(lock_);
        const std::size_t count = std::min(keys_a_step_max_, replicas.size() - at);
        const bool is_last = at + count == replicas.size();
        metadata_.retire_confirmed(node, reply->command_id, std::span(replicas).subspan(at, count), is_last);
        if (is_last) break;
        at += count;
    }
    for (std::size_t at = 0; at < freed.size(); at += keys_a_step_max_) {
        if (at > 0) give_way();
        const std::lock_guard guard(lock_);
        const std::size_t count = std::min(keys_a_step_max_, freed.size() - at);
        metadata_.freed(std::span(freed).subspan(at, count), effects_);
        absorb(nullptr, outbox);
    }
    carry_out(outbox);
    return true;
}

bool StateDriver::copy_answered(const LinkPtr& link, Status status, wire::Bytes body) {
    if (!wire::ok(status)) {
        {
            const std::lock_guard guard(lock_);
            ++copies_refused_total_;
        }
        link->close(std::string("it refused a copy command: ") + wire::status_name(status));
        return true;
    }
    const auto reply = wire::parse_copy_reply(body);
    if (!reply) return false;
    Outbox outbox;
    {
        const std::lock_guard guard(lock_);
        const std::vector<wire::SessionId> sessions = link->sessions;
        for (const auto session : sessions) {
            metadata_.copy_answered(session, reply->target, reply->status, clock_.now_ms(), effects_);
        }
        absorb(nullptr, outbox);
    }
    carry_out(outbox);
    return true;
}

void StateDriver::probe_ended(wire::SessionId node, metadata::ProbeResult result) {
    Outbox outbox;
    {
        const std::lock_guard guard(lock_);
        metadata_.probed(node, result, clock_.now_ms(), effects_);
        absorb(nullptr, outbox);
    }
    carry_out(outbox);
}

bool StateDriver::tick() {
    Outbox outbox;
    bool is_idle = true;
    {
        const std::lock_guard guard(lock_);
        const std::uint64_t now_ms = clock_.now_ms();
        is_idle = metadata_.tick(now_ms, effects_);
        absorb(nullptr, outbox);
        expire_parked(now_ms, outbox);
        expel_stalled_nodes(now_ms, outbox);
    }
    carry_out(outbox);
    return is_idle;
}

void StateDriver::stop() {
    Outbox outbox;
    {
        const std::lock_guard guard(lock_);
        is_stopped_ = true;
        for (auto* parked : {&space_waiters_, &confirm_waiters_}) {
            for (auto at = parked->begin(); at != parked->end();) {
                const CallPtr call = *at++;
                if (!call->is_running) refuse(call, Status::kClosed, "the master is stopping", outbox);
            }
        }
    }
    carry_out(outbox);
}

std::vector<std::pair<std::string, std::uint64_t>> StateDriver::stats() {
    const std::lock_guard guard(lock_);
    auto stats = metadata_.stats();
    stats.emplace_back("parked_calls_count", space_waiters_.size() + confirm_waiters_.size());
    stats.emplace_back("parked_bytes", parked_bytes_);
    stats.emplace_back("parked_calls_total", parked_total_);
    stats.emplace_back("space_wait_timeouts_total", space_timeouts_total_);
    stats.emplace_back("confirm_wait_timeouts_total", confirm_timeouts_total_);
    stats.emplace_back("busy_answers_total", busy_total_);
    stats.emplace_back("repeats_attached_total", repeats_attached_total_);
    stats.emplace_back("retire_queue_count", queues_.length());
    stats.emplace_back("retire_commands_total", queues_.commands_total());
    stats.emplace_back("retire_refusals_total", retires_refused_total_);
    stats.emplace_back("copy_refusals_total", copies_refused_total_);
    stats.emplace_back("unreachable_mounts_total", mounts_unreachable_total_);
    stats.emplace_back("stalled_nodes_total", stalled_links_total_);
    stats.emplace_back("connected_sessions_count", links_of_.size());
    stats.emplace_back("clock_dropped_ms", clock_.dropped_ms());
    stats.emplace_back("after_term_refusals_total", after_term_total_.load(std::memory_order_relaxed));
    return stats;
}

std::uint64_t StateDriver::hear_of_reign(std::uint64_t epoch, const wire::Uuid& master) {
    const std::lock_guard guard(lock_);
    metadata_.hear_of_reign(epoch, master, clock_.now_ms());
    const auto deposed_by = metadata_.deposed_by();
    // Who is elected next is not known here; its epoch is higher.
    return deposed_by == 0 && is_term_over() ? this->epoch() + 1 : deposed_by;
}

std::uint64_t StateDriver::tombstones_generation() {
    const std::lock_guard guard(lock_);
    return metadata_.tombstones_generation();
}

wire::Buffer StateDriver::tombstones() {
    const std::lock_guard guard(lock_);
    return metadata_.tombstones();
}

bool StateDriver::restore_tombstones(wire::Bytes kept) {
    const std::lock_guard guard(lock_);
    return metadata_.restore_tombstones(kept);
}

void StateDriver::tombstones_kept(std::uint64_t generation) {
    Outbox outbox;
    {
        const std::lock_guard guard(lock_);
        kept_generation_ = std::max(kept_generation_, generation);
        for (auto at = confirm_waiters_.begin(); at != confirm_waiters_.end();) {
            const CallPtr call = *at++;
            finish_if_confirmed(call, outbox);
        }
    }
    carry_out(outbox);
}

void StateDriver::check_invariants() {
    const std::lock_guard guard(lock_);
    metadata_.check_invariants();
}

// ---- without the lock ----

// A node that has lost its connection for a while is not asked again: what it lends is in use, and whoever
// cannot reach it says so (Life of a lost node).
std::optional<wire::Mount> StateDriver::mount_to_check(const Call& call, wire::Bytes body) {
    auto mount = check_mount_ ? wire::parse_mount(body) : std::nullopt;
    if (!mount) return std::nullopt;
    const std::lock_guard guard(lock_);
    if (metadata_.has_mounted(call.command.session(), *mount)) return std::nullopt;
    return mount;
}

// The endpoints of this mount were dialled, or not.
void StateDriver::dialled_back(const CallPtr& call, Status status, std::string_view why) {
    Outbox outbox;
    if (wire::ok(status)) {
        advance(call, outbox);
    } else {
        const std::lock_guard guard(lock_);
        if (status == Status::kUnreachable) ++mounts_unreachable_total_;
        refuse(call, status, why, outbox);
    }
    carry_out(outbox);
}

// Steps a call until it is finished, parked, or another call's business.
void StateDriver::advance(const CallPtr& call, Outbox& outbox) {
    for (;;) {
        {
            const std::lock_guard guard(lock_);
            if (!call->is_admitted && !admit(call, outbox)) return;
            const bool paused = metadata_.step(call->command, clock_.now_ms(), effects_);
            absorb(call.get(), outbox);
            if (paused && settle(call, outbox) == Progress::kPaused) return;
            if (!call->is_in_progress && call->command.sequence() != 0) {
                call->is_in_progress = true;
                in_progress_[{call->command.session(), call->command.sequence()}] = call;
            }
        }
        send_commands(outbox);
        give_way();
    }
}

void StateDriver::carry_out(Outbox& outbox) {
    for (;;) {
        send_commands(outbox);
        for (const auto& link : std::exchange(outbox.stalled, {})) {
            link->close("it left a retire command unanswered for " + std::to_string(command_timeout_ms_) +
                        " ms");
        }
        for (const auto& [node, endpoint] : std::exchange(outbox.probes, {})) {
            if (probe_) probe_(node, endpoint);
        }
        for (auto& answer : std::exchange(outbox.answers, {})) {
            for (std::size_t i = 0; i < answer.askers.size(); ++i) {
                const bool is_last = i + 1 == answer.askers.size();
                wire::Buffer body = is_last ? std::move(answer.body) : answer.body;
                metrics_.record(answer.verb, answer.status, steady_us() - answer.askers[i].started_us);
                answer.askers[i].done(answer.status, std::move(body));
            }
        }
        if (outbox.resumed.empty()) return;
        const CallPtr call = outbox.resumed.front();
        outbox.resumed.pop_front();
        advance(call, outbox);
    }
}

void StateDriver::give_way() {
    if (lock_.is_wanted()) std::this_thread::sleep_for(kGiveWay);
}

// ---- under the lock: calls ----

// Before the first step. False: answered already, or left to the call in progress that it repeats.
bool StateDriver::admit(const CallPtr& call, Outbox& outbox) {
    call->is_admitted = true;
    call->generation = space_generation_;
    const metadata::Command& command = call->command;
    const auto busy = [&](std::string_view why) {
        ++busy_total_;
        refuse(call, Status::kBusy, why, outbox);
        return false;
    };
    if (is_stopped_) {
        refuse(call, Status::kClosed, "the master is stopping", outbox);
        return false;
    }
    // Stepped now it could undo what its node has asked for since, on a later connection.
    if (call->was_held_up && call->link && call->link->is_closed) {
        refuse(call, Status::kClosed, "the connection ended before the mount began", outbox);
        return false;
    }
    if (call->link && command.session() != 0 && !attach(call->link, command.session(), outbox)) {
        return busy("too many sessions speak on this connection (sessions_a_link_max)");
    }
    if (command.sequence() != 0) {
        const auto found = in_progress_.find({command.session(), command.sequence()});
        if (found != in_progress_.end()) {
            Call& first = *found->second;
            if (first.command.verb() != command.verb()) {
                refuse(call, Status::kInvalidParams, "this sequence names another request in progress",
                       outbox);
            } else if (first.askers.size() >= options_.repeats_a_call_max) {
                return busy("too many repeats of this request wait for its answer (repeats_a_call_max)");
            } else {
                ++repeats_attached_total_;
                first.askers.push_back(std::move(call->askers.front()));
            }
            return false;
        }
    }
    const bool is_dear = command.verb() == Verb::kPutEnd || command.verb() == Verb::kPutRevoke;
    const bool may_park = is_dear || command.verb() == Verb::kPutStart || command.verb() == Verb::kRemove;
    if (may_park && parking_is_full(is_dear ? 2 : 1))
        return busy("too many calls are parked (parked_calls_max)");
    return true;
}

// After a step that answered true.
StateDriver::Progress StateDriver::settle(const CallPtr& call, Outbox& outbox) {
    const metadata::Command& command = call->command;
    if (!command.done()) return settle_waiting(call, outbox);
    if (call->link && command.status() == Status::kSessionUnknown) detach(call->link, command.session());
    if (call->link && command.verb() == Verb::kOpenSession && wire::ok(command.status())) {
        attach(call->link, command.session(), outbox);
    }
    if (command.ends_unseen()) call->needs_kept = metadata_.generation_due();
    // What it ended may have been on a node that left a moment ago.
    if (promises_no_more_reads(command.verb())) {
        call->needs_kept = std::max(call->needs_kept, expulsion_generation_);
    }
    const std::uint64_t now_ms = steady_ms();
    wait_out_memory(*call, now_ms);
    if (!waits_for_confirmation(*call)) {
        finish(call, outbox);
    } else if (is_stopped_) {
        refuse(call, Status::kClosed, "the master is stopping", outbox);
    } else {
        call->deadline_ms = clock_.now_ms() + options_.remove_confirm_timeout_ms;
        call->waits_until_ms = now_ms + options_.remove_confirm_timeout_ms;
        park(call, confirm_waiters_);
    }
    return Progress::kPaused;
}

// Keys of this put_start lack space that is on its way back. It keeps its place in the queue and its deadline
// while it is tried again.
StateDriver::Progress StateDriver::settle_waiting(const CallPtr& call, Outbox& outbox) {
    const std::uint64_t now_ms = clock_.now_ms();
    if (is_stopped_) {
        refuse(call, Status::kClosed, "the master is stopping", outbox);
        return Progress::kPaused;
    }
    if (call->deadline_ms == 0) call->deadline_ms = now_ms + options_.alloc_wait_ms;
    const bool is_over = now_ms >= call->deadline_ms;
    if (!is_over && call->generation != space_generation_) {
        // Bytes came back between two of its steps, after its first keys had been looked at.
        call->generation = space_generation_;
        return Progress::kGoOn;
    }
    if (is_over || (call->parked_in == nullptr && parking_is_full())) {
        ++space_timeouts_total_;
        metadata_.refuse_waiting(call->command, now_ms);
        finish(call, outbox);
        return Progress::kPaused;
    }
    if (call->parked_in == nullptr) park(call, space_waiters_);
    call->is_running = false;
    return Progress::kPaused;
}

bool StateDriver::parking_is_full(std::size_t times) const {
    return space_waiters_.size() + confirm_waiters_.size() >= options_.parked_calls_max * times ||
           parked_bytes_ >= options_.parked_bytes_max * times;
}

void StateDriver::park(const CallPtr& call, std::list<CallPtr>& where) {
    ++parked_total_;
    parked_bytes_ += call->request_bytes;
    call->parked_in = &where;
    call->parked_at = where.insert(where.end(), call);
    call->is_running = false;
    if (!call->is_in_progress && call->command.sequence() != 0) {
        call->is_in_progress = true;
        in_progress_[{call->command.session(), call->command.sequence()}] = call;
    }
}

void StateDriver::unpark(const CallPtr& call) {
    if (call->parked_in == nullptr) return;
    parked_bytes_ -= call->request_bytes;
    call->parked_in->erase(call->parked_at);
    call->parked_in = nullptr;
}

void StateDriver::finish(const CallPtr& call, Outbox& outbox) {
    const Status status = call->command.status();
    wire::Buffer body = call->command.take_body();
    unpark(call);
    if (call->is_in_progress) in_progress_.erase({call->command.session(), call->command.sequence()});
    if (call->unconfirmed > 0) {
        for (const auto replica : call->awaited) {
            const auto [first, last] = awaited_.equal_range(replica);
            const auto own =
                std::find_if(first, last, [&](const auto& entry) { return entry.second == call; });
            if (own != last) awaited_.erase(own);
        }
    }
    outbox.answers.push_back({call->command.verb(), status, std::move(body), std::move(call->askers)});
}

// An answer of the driver's own, whatever the command came to.
void StateDriver::refuse(const CallPtr& call, Status status, std::string_view why, Outbox& outbox) {
    finish(call, outbox);
    outbox.answers.back().status = status;
    outbox.answers.back().body = text_body(why);
}

void StateDriver::expire_parked(std::uint64_t now_ms, Outbox& outbox) {
    std::size_t expired = 0;
    for (auto at = space_waiters_.begin(); at != space_waiters_.end() && (*at)->deadline_ms <= now_ms;) {
        const CallPtr call = *at++;
        if (call->is_running) continue;  // it sees its deadline itself when its step ends
        if (++expired > kExpiredATickMax) break;
        ++space_timeouts_total_;
        metadata_.refuse_waiting(call->command, now_ms);
        finish(call, outbox);
    }
    for (auto at = confirm_waiters_.begin(); at != confirm_waiters_.end();) {
        const CallPtr call = *at++;
        finish_if_confirmed(call, outbox);
    }
    // By both clocks: the bounded one may have stood still when they began to wait, and lets nodes answer
    // that were stopped with this master; the other one is as long for who remembers a place.
    const std::uint64_t true_ms = steady_ms();
    while (!confirm_waiters_.empty() && confirm_waiters_.front()->deadline_ms <= now_ms &&
           confirm_waiters_.front()->waits_until_ms <= true_ms) {
        const CallPtr call = confirm_waiters_.front();
        ++confirm_timeouts_total_;
        finish(call, outbox);
    }
}

// ---- under the lock: effects ----

void StateDriver::absorb(Call* call, Outbox& outbox) {
    epoch_.store(metadata_.epoch(), std::memory_order_release);
    bool space_returned = false;
    wire::SegmentId unheard = 0;
    for (const auto& effect : effects_) {
        switch (effect.kind) {
            case metadata::Effect::Kind::kRetire: {
                if (!queues_.retire(effect.segment, effect.replica)) break;
                await_confirmation(call, effect.replica);
                want_commands(queues_.owner(effect.segment), outbox);
                break;
            }
            case metadata::Effect::Kind::kAwait:
                await_confirmation(call, effect.replica);
                break;
            case metadata::Effect::Kind::kExpel:
                for (const auto replica : queues_.expelled(effect.segment)) {
                    replica_lost(replica, effect.segment == unheard, outbox);
                }
                expulsion_generation_ = metadata_.generation_due();
                break;
            case metadata::Effect::Kind::kUnheard:
                unheard = effect.segment;
                unheard_ms_ = steady_ms();
                break;
            case metadata::Effect::Kind::kLostCopy:
                if (call != nullptr) call->met_lost_copy = true;
                break;
            case metadata::Effect::Kind::kEndSession:
                session_ended(effect.session, outbox);
                break;
            case metadata::Effect::Kind::kMounted:
                queues_.mounted(effect.segment, effect.session);
                break;
            case metadata::Effect::Kind::kCopy:
                want_copy(effect.replica, effect.session, outbox);
                break;
            case metadata::Effect::Kind::kProbe:
                outbox.probes.emplace_back(effect.session, metadata_.endpoint(effect.segment));
                break;
            case metadata::Effect::Kind::kSpaceReturned:
                space_returned = true;
                break;
        }
    }
    effects_.clear();
    if (!space_returned) return;
    ++space_generation_;
    if (call != nullptr) ++call->generation;  // what it brought back itself it has seen
    for (const auto& waiting : space_waiters_) {
        if (waiting->is_running) continue;
        waiting->is_running = true;
        waiting->generation = space_generation_;
        outbox.resumed.push_back(waiting);
    }
}

}  // namespace mooncake::master
