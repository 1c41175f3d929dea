#include "metadata/machine.h"

#include <algorithm>
#include <tuple>

namespace mooncake::metadata {

Machine::Machine(const Options& options, std::uint64_t epoch, const wire::Uuid& master, std::uint64_t seed)
    : options_(options),
      epoch_(epoch),
      first_epoch_(epoch),
      master_(master),
      random_(seed),
      sessions_(tenants_),
      table_(seed, options.prefer_large_pages),
      journal_(options.journal_events),
      policy_(make_eviction_policy(options.eviction_policy)) {
    wire::Writer writer(told_bytes_);
    wire::encode(told_, writer);
}

std::uint64_t Machine::next_id() {
    if (counter_ == wire::kCounterMax) begin_epoch(epoch_ + 1);
    return wire::make_id(epoch_, ++counter_);
}

// All ids come from one counter, so that one number separates settled puts and replicas from the others.
std::uint64_t Machine::settled_id() const {
    std::uint64_t settled = wire::make_id(epoch_, counter_);
    if (puts_.oldest() != 0) settled = std::min(settled, puts_.at(puts_.oldest()).put_id - 1);
    if (copies_.size() > 0) settled = std::min(settled, copies_.all().front().target.replica - 1);
    return settled;
}

void Machine::advance_clock(std::uint64_t now_ms) {
    if (now_ms > now_ms_) now_ms_ = now_ms;
    if (rebuild_until_ms_ != 0) return;
    rebuild_until_ms_ = later(kRebuildTtls * options_.client_ttl_ms);
    begin_epoch(epoch_);
}

void Machine::begin_epoch(std::uint64_t epoch) {
    epoch_ = epoch;
    counter_ = 0;
    note_pool(wire::EventKind::kEpochTaken, wire::EventReason::kNone, epoch);
}

// Reigns are ordered by epoch and, where two masters took the same one, by their uuids: every node that knows
// both says the same.
void Machine::hear_of_reign(std::uint64_t epoch, const wire::Uuid& master, std::uint64_t now_ms) {
    advance_clock(now_ms);
    if (std::tie(epoch, master) <= std::tie(epoch_, master_)) return;
    if (deposed_by() == 0) note_pool(wire::EventKind::kDeposed, wire::EventReason::kNone, epoch);
    deposed_by_ = epoch;
    deposed_until_ms_ = later(options_.client_ttl_ms);
}

bool Machine::is_refused_as_deposed(State& command) {
    if (deposed_by() == 0 || command.verb == wire::Verb::kStats || command.verb == wire::Verb::kInspect) {
        return false;
    }
    for (auto& waiting : command.waiting) release_promise(waiting.promise);
    command.waiting.clear();
    command.finish(wire::Status::kStaleEpoch, "this master, of epoch " + std::to_string(epoch_) +
                                                  ", stepped down: one of epoch " +
                                                  std::to_string(deposed_by_) + " reigns");
    return true;
}

bool Machine::step(Command& command, std::uint64_t now_ms, Effects& effects) {
    State& state = command.state();
    advance_clock(now_ms);
    if (state.done) return true;
    if (!state.begun && !begin(state, effects)) return true;
    if (state.verb != wire::Verb::kOpenSession && state.verb != wire::Verb::kCloseSession &&
        sessions_.find(state.prefix.session) == nullptr) {
        // It ended between two steps of this command.
        for (auto& waiting : state.waiting) release_promise(waiting.promise);
        state.finish(wire::Status::kSessionUnknown, "the session ended");
        ++counters_.of(state.verb).failures;
        return true;
    }
    const bool paused = !is_refused_as_deposed(state) && run(state, effects);
    if (state.verb == wire::Verb::kPutStart) relieve(effects);
    if (state.done) answered(state);
    return state.done || paused;
}

namespace {

bool needs_sequence(wire::Verb verb) {
    return verb == wire::Verb::kPutStart || verb == wire::Verb::kPutEnd || verb == wire::Verb::kPutRevoke ||
           verb == wire::Verb::kRemove || verb == wire::Verb::kCreateCopyTask ||
           verb == wire::Verb::kCreateMoveTask;
}

}  // namespace

// Counts the request and looks whether it was answered before. False: it is done.
bool Machine::begin(State& command, Effects&) {
    command.begun = true;
    VerbCounters& counted = counters_.of(command.verb);
    ++counted.requests;
    if (command.verb == wire::Verb::kOpenSession) return true;
    const auto refuse = [&](wire::Status status, std::string_view why) {
        command.finish(status, why);
        ++counted.failures;
        return false;
    };
    Session* session = sessions_.find(command.prefix.session);
    if (session == nullptr) return refuse(wire::Status::kSessionUnknown, "open a session first");
    const std::uint64_t sequence = command.prefix.sequence;
    if (sequence == 0) {
        if (!needs_sequence(command.verb)) return true;
        return refuse(wire::Status::kInvalidParams,
                      "a request that changes something needs a sequence above 0");
    }
    if (const auto* answer = session->replays.find(sequence)) {
        if (answer->verb != command.verb) {
            return refuse(wire::Status::kInvalidParams, std::string("this sequence was given to ") +
                                                            wire::verb_name(answer->verb) + " before");
        }
        ++counters_.replayed_requests;
        if (!answer->done)
            return refuse(wire::Status::kBusy, "the first request of this sequence is under way");
        command.finish(answer->status, {});
        command.body = answer->body;
        for (const auto replica : answer->retired) {
            if (retiring_.find(replica) != nullptr) command.retired.push_back(replica);
        }
        return false;
    }
    if (session->replays.is_stale(sequence)) {
        return refuse(wire::Status::kStaleRequest, "this sequence left the replay window");
    }
    session->replays.begin(sequence, command.verb);
    return true;
}

// True: done, or waiting for space.
bool Machine::run(State& command, Effects& effects) {
    switch (command.verb) {
        case wire::Verb::kOpenSession:
            return open_session(command);
        case wire::Verb::kHeartbeat:
            return heartbeat(command, effects);
        case wire::Verb::kCloseSession:
            return close_session(command, effects);
        case wire::Verb::kMount:
            return mount(command, effects);
        case wire::Verb::kUnmount:
            return unmount(command, effects);
        case wire::Verb::kDrain:
            return drain(command);
        case wire::Verb::kSegments:
            return segments(command);
        case wire::Verb::kExists:
        case wire::Verb::kMatchPrefix:
        case wire::Verb::kLookup:
        case wire::Verb::kTouch:
        case wire::Verb::kRelease:
        case wire::Verb::kWhy:
            return read_keys(command, effects);
        case wire::Verb::kPutStart:
            return put_start(command, effects);
        case wire::Verb::kPutEnd:
            return put_end(command, effects);
        case wire::Verb::kPutRevoke:
            return put_revoke(command, effects);
        case wire::Verb::kRemove:
            return remove_keys(command, effects);
        case wire::Verb::kList:
            return list(command);
        case wire::Verb::kReport:
            return report(command, effects);
        case wire::Verb::kInventory:
            return inventory(command, effects);
        case wire::Verb::kInspect:
            return inspect(command, effects);
        case wire::Verb::kCreateCopyTask:
        case wire::Verb::kCreateMoveTask:
            return create_task(command, effects);
        case wire::Verb::kQueryTask:
            return query_task(command);
        case wire::Verb::kTombstones:
            return tombstones(command, effects);
        case wire::Verb::kHoldings:
            return holdings(command, effects);
        case wire::Verb::kStats: {
            std::vector<wire::Stat> records;
            const auto owned = stats();
            for (const auto& [name, value] : owned) records.push_back({name, value});
            wire::Writer writer(command.body);
            wire::encode_stats(records, writer);
            command.finish(wire::Status::kOk);
            return true;
        }
        default:
            command.finish(wire::Status::kNotSupported, "not a verb of the state machine");
            return true;
    }
}

// Counts the outcome and remembers the answer of a request that changed something.
void Machine::answered(State& command) {
    VerbCounters& counted = counters_.of(command.verb);
    const std::size_t items = command.key_count();
    counted.items += items;
    counted.failed_items += command.failed_items;
    if (!wire::ok(command.status) || (items > 0 && command.failed_items == items)) {
        ++counted.failures;
    } else if (command.failed_items > 0) {
        ++counted.partial_successes;
    }
    if (command.prefix.sequence == 0) return;
    Session* session = sessions_.find(command.prefix.session);
    if (session == nullptr) return;
    ReplayWindow::Answer answer;
    answer.verb = command.verb;
    answer.status = command.status;
    answer.body = command.body;
    answer.retired = command.retired;
    session->replays.finish(command.prefix.sequence, std::move(answer), options_.replay_window,
                            options_.replay_bytes_max);
}

void Machine::retire_confirmed(wire::SessionId node, std::uint64_t command_id,
                               std::span<const wire::ReplicaId> confirmed, bool is_last) {
    for (const auto replica : confirmed) {
        if (orphan_count_ > 0) forget_orphan(node, replica);
        const Retiring::Entry* entry = retiring_.find(replica);
        if (entry == nullptr) continue;
        Segment& segment = segments_.at(entry->segment);
        if (entry->is_tombstone != 0) {
            forget_ended(segment, replica);
            retiring_.set_tombstone(replica, false);
        }
        discount_ended(segment, replica, *entry);
        retiring_.confirm(replica);
    }
    if (Session* session = sessions_.find(node)) {
        session->confirmed_command_id = is_last ? command_id : Session::kBetweenCommands;
    }
}

void Machine::freed(std::span<const wire::ReplicaId> freed, Effects& effects) {
    std::vector<SegmentIndex> returned;
    for (const auto replica : freed) {
        const Retiring::Entry* found = retiring_.find(replica);
        if (found == nullptr) continue;  // reported again, or of a segment that left
        const std::uint64_t bytes = found->bytes;
        const SegmentIndex index = found->segment;
        ++counters_.freed_replicas;
        change({{replica, index}, bytes}, ReplicaStatus::kRetiring, ReplicaEvent::kFreed, 0, effects);
        if (!segments_.at(index).is_mounted()) continue;
        bool known = false;
        for (const auto segment : returned) known = known || segment == index;
        if (!known) returned.push_back(index);
    }
    for (const auto segment : returned) {
        effects.push_back({Effect::Kind::kSpaceReturned, segments_.at(segment).id, 0, 0});
    }
}

}  // namespace mooncake::metadata
