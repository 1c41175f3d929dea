// What StateDriver's source files share and nobody else sees: a call under way, and what a hold of the lock
// leaves to be done without it.
#pragma once

#include <deque>

#include "master/state_driver.h"

namespace mooncake::master {

// Their answer promises that nobody starts a read of the old value any more (DESIGN §4, remove).
inline bool promises_no_more_reads(wire::Verb verb) {
    return verb == wire::Verb::kRemove || verb == wire::Verb::kPutRevoke || verb == wire::Verb::kPutEnd;
}

struct StateDriver::Call : std::enable_shared_from_this<StateDriver::Call> {
    struct Asker {
        Completion done;
        std::uint64_t started_us = 0;
    };

    metadata::Command command;
    LinkPtr link;
    std::vector<Asker> askers;
    std::size_t request_bytes = 0;

    bool was_held_up = false;  // between its arrival and its first step; its connection may have ended
    bool is_admitted = false;
    bool is_in_progress = false;  // in in_progress_
    bool is_running = true;       // some thread is stepping it; nobody else may
    std::list<CallPtr>* parked_in = nullptr;
    std::list<CallPtr>::iterator parked_at;
    std::uint64_t deadline_ms = 0;
    std::uint64_t generation = 0;  // space_generation_ when its keys were last looked at

    std::vector<wire::ReplicaId> awaited;  // retired by it; those still unconfirmed are in awaited_
    std::size_t unconfirmed = 0;
    bool met_lost_copy = false;  // on a segment that left the pool without its node's agreement
    // Until then somebody may remember a place of what it ended at a node that cannot be told. Of
    // steady_ms().
    std::uint64_t remembered_until_ms = 0;
    std::uint64_t waits_until_ms = 0;  // parked for confirmation: of steady_ms(), as well as deadline_ms
    std::uint64_t needs_kept = 0;      // tombstones of this generation, before it is answered
};

struct StateDriver::Answer {
    wire::Verb verb = wire::Verb::kPing;
    wire::Status status = wire::Status::kOk;
    wire::Buffer body;
    std::vector<Call::Asker> askers;
};

// What a hold of the lock leaves to be done without it.
struct StateDriver::Outbox {
    std::vector<LinkPtr> links;  // have commands to be sent
    std::vector<std::pair<LinkPtr, wire::Buffer>> copies;
    std::vector<Answer> answers;
    std::deque<CallPtr> resumed;
    std::vector<LinkPtr> stalled;
    std::vector<std::pair<wire::SessionId, std::string>> probes;
};

}  // namespace mooncake::master
