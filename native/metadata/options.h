// The state machine's settings, typed and with their defaults (DESIGN's names); read once, at construction.
#pragma once

#include <cstdint>

#include "metadata/eviction_policy.h"
#include "metadata/memory.h"

namespace mooncake::metadata {

enum class AllocationStrategy : std::uint8_t { kRandom, kFreeRatioFirst, kLocalFirst };

struct Options {
    std::uint64_t client_ttl_ms = 10'000;    // a session without a heartbeat this long is expired
    std::uint64_t session_grace_ms = 1'000;  // a session without a connection this long loses unfinished puts
    std::uint32_t heartbeat_interval_ms = 1'000;  // told to clients, or a quarter of client_ttl_ms
    std::uint64_t lease_ttl_ms = 10'000;          // default_kv_lease_ttl
    std::uint64_t exists_hold_ms = 2'000;
    // Readers may remember the places that a lookup told them for so long. Whoever drives the machine answers
    // nothing that ends a value, without its nodes' word, before that has passed. 0: they may not.
    std::uint64_t location_ttl_ms = 0;
    std::uint64_t put_start_discard_ms = 30'000;   // an unfinished put may be replaced after this long
    std::uint64_t put_start_release_ms = 600'000;  // and is reaped after this long
    std::uint64_t soft_pin_ms = 1'800'000;
    std::uint64_t soft_pin_max_ms = 86'400'000;
    bool evict_soft_pinned = true;
    double eviction_high_watermark_ratio = 0.90;
    double eviction_ratio = 0.05;
    EvictionPolicyKind eviction_policy = EvictionPolicyKind::kAdaptive;
    AllocationStrategy allocation = AllocationStrategy::kRandom;
    std::uint64_t max_keys = 10'000'000;
    std::uint64_t max_metadata_bytes = std::uint64_t{4} << 30;
    // Copies between nodes (repair, handover, tasks).
    std::uint32_t copies_max = 64;           // under way at once
    std::uint32_t copies_a_node_max = 8;     // of them, from one node, and to one
    std::uint64_t copy_timeout_ms = 10'000;  // and one second more for each 16 MiB of the value
    // A lost replica is copied anew while the pool is used less than this: cache that is asked for goes
    // first.
    double repair_low_watermark_ratio = 0.80;
    std::uint64_t repair_bytes_per_s = 256u << 20;  // 0: nothing is repaired
    std::uint32_t repair_queue_max = 65'536;   // objects that wait for it; beyond it the index is searched
    std::uint32_t handover_keys_max = 65'536;  // the hottest objects that a leaving node may hand over
    // Tasks: copies and moves that a client asked for. At the limit creating one is refused.
    std::uint32_t tasks_pending_max = 10'000;   // not yet ended, whether begun or not
    std::uint32_t tasks_finished_max = 10'000;  // of the last ones is told how they ended
    // Of one that waits to begin, and of one that has begun, until it fails; 0: however long it takes.
    std::uint64_t task_pending_timeout_ms = 300'000;
    std::uint64_t task_processing_timeout_ms = 300'000;
    std::uint32_t task_attempts_max = 10;       // of one copy, a second apart
    std::uint32_t replay_window = 1'024;        // requests a session
    std::uint64_t replay_bytes_max = 4u << 20;  // of remembered answers a session
    std::uint32_t sessions_max = 65'536;
    std::uint32_t segments_max = 16'384;
    std::uint64_t journal_events = 65'536;          // of copies of values, 32 bytes each; see journal.h
    std::uint32_t keys_a_step_max = 1'000;          // keys handled under one hold of the lock
    PreferLargePages prefer_large_pages = nullptr;  // for tables; null: nobody is asked
};

}  // namespace mooncake::metadata
