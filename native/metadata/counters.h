// What happened, as plain numbers; written where it happens, named and published by stats.cc.
#pragma once

#include <array>
#include <cstdint>

#include "wire/frame.h"
#include "wire/lane.h"

namespace mooncake::metadata {

struct VerbCounters {
    std::uint64_t requests = 0;
    std::uint64_t failures = 0;           // the frame was refused, or every item was
    std::uint64_t partial_successes = 0;  // some items were refused
    std::uint64_t items = 0;
    std::uint64_t failed_items = 0;
};

struct Counters {
    static constexpr std::size_t kVerbs = 64;
    std::array<VerbCounters, kVerbs> verbs{};
    VerbCounters& of(wire::Verb verb) { return verbs[static_cast<std::size_t>(verb) % kVerbs]; }

    std::uint64_t lookup_hits = 0;
    std::uint64_t lookup_hit_bytes = 0;
    std::uint64_t remembered_hits = 0;  // of lookup_hits: read where an earlier lookup had found them
    std::array<std::uint64_t, wire::kAbsences> misses{};  // of lookups, by reason

    std::uint64_t allocation_failures = 0;  // no replica could be placed
    std::uint64_t partial_allocations = 0;  // fewer than were asked for
    std::uint64_t waits_for_space = 0;      // keys that had to wait for retirements

    std::uint64_t eviction_rounds = 0;     // begun at the watermark, for a failed allocation or for a limit
    std::uint64_t eviction_successes = 0;  // of those: that ended having freed something
    std::uint64_t evicted_keys = 0;
    std::uint64_t evicted_bytes = 0;        // charged bytes of their replicas
    std::uint64_t evicted_leased_keys = 0;  // although somebody held a lease or an exists hold
    std::uint64_t evicted_soft_pinned_keys = 0;

    std::uint64_t expired_keys = 0;
    std::uint64_t removed_keys = 0;
    std::uint64_t superseded_keys = 0;
    std::uint64_t lost_keys = 0;       // the last replica's segment left the pool
    std::uint64_t puts_discarded = 0;  // an unfinished put gave way to another
    std::uint64_t puts_reaped = 0;     // unfinished for put_start_release_ms
    std::uint64_t puts_orphaned = 0;   // revoked because the session ended or lost its connection
    std::uint64_t sessions_opened = 0;
    std::uint64_t sessions_expired = 0;
    std::uint64_t segments_mounted = 0;
    std::uint64_t segments_expelled = 0;
    std::uint64_t freed_replicas = 0;
    std::uint64_t adopted_replicas = 0;  // told by inventories and taken into the index
    std::uint64_t refused_replicas = 0;  // told, and retired: outdated, removed since, or no room
    std::uint64_t inventories = 0;       // complete ones
    std::uint64_t copies_started = 0;
    std::uint64_t copies_committed = 0;
    std::uint64_t copied_bytes = 0;
    std::uint64_t copies_failed = 0;     // the node said so
    std::uint64_t copies_timed_out = 0;  // it did not answer in time
    std::uint64_t copies_abandoned = 0;  // the value ended, or a node left
    std::uint64_t repairs_given_up = 0;  // no segment may take the copy, or copying failed again and again
    std::uint64_t repair_searches = 0;   // of the index, for objects that lack replicas
    std::uint64_t handed_over_keys = 0;  // moved from a node that is leaving
    std::uint64_t drained_segments = 0;
    std::uint64_t tasks_succeeded = 0;  // copies and moves that a client asked for
    std::uint64_t tasks_failed = 0;
    std::uint64_t tombstone_lists = 0;       // handed over by nodes
    std::uint64_t dead_keys = 0;             // taken in before a list told that they are dead
    std::uint64_t reconcile_checks = 0;      // of a segment's report, comparable and compared
    std::uint64_t reconcile_mismatches = 0;  // of those: that differed
    std::uint64_t reconcile_orphans = 0;     // held by a node and not known here: retired
    std::uint64_t reconcile_ghosts = 0;      // believed to be on a node that does not hold them: forgotten
    std::uint64_t comparisons_given_up = 0;  // the node did not list what it holds within client_ttl
    std::uint64_t replayed_requests = 0;
    std::uint64_t unreachable_reports = 0;  // segments named by heartbeats
    std::uint64_t probes = 0;
    std::uint64_t probe_failures = 0;
    std::uint64_t early_expiries = 0;  // of the sessions expired: before client_ttl, for a probe
};

}  // namespace mooncake::metadata
