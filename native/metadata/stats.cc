// Counters and gauges by name. Units are in the names; counters end in _total.
#include "metadata/machine.h"

namespace mooncake::metadata {

namespace {

// By wire::Absence.
constexpr std::array<std::string_view, wire::kAbsences - 1> kAbsenceNames{
    "present", "never_stored", "evicted",   "removed",    "expired",
    "lost",    "abandoned",    "not_ready", "rebuilding", "unreachable",
};

}  // namespace

std::vector<std::pair<std::string, std::uint64_t>> Machine::stats() const {
    const auto totals = segments_.dram_totals();
    std::uint64_t capacity = 0;
    std::uint64_t charged = 0;
    for (const auto index : segments_.mounted()) {
        capacity += segments_.at(index).capacity_bytes;
        charged += segments_.at(index).charged_bytes();
    }
    std::uint64_t active = 0;
    sessions_.visit_all([&](const Session& session) { active += session.ending ? 0 : 1; });
    const PolicyFigures figures = policy_->figures();
    const auto millionths = [](double share) { return static_cast<std::uint64_t>(share * 1e6); };
    std::vector<std::pair<std::string, std::uint64_t>> all{
        {"epoch", epoch_},
        {"deposed_by_epoch", deposed_by()},
        {"key_count", visible_count_},
        {"hard_pin_key_count", hard_pinned_count_},
        {"soft_pin_key_count", soft_pinned_count_},
        {"ttl_key_count", ttl_count_},
        {"value_bytes", value_bytes_},
        {"unfinished_put_count", puts_.size()},
        {"copy_count", copies_.size()},
        {"repair_queue_count", repairs_.size()},
        {"handover_queue_count", handovers_.size()},
        {"task_count", tasks_.unfinished_count()},
        {"draining_segment_count", segments_.draining_count()},
        {"allocated_bytes", charged},
        {"total_capacity_bytes", capacity},
        {"dram_used_bytes", totals.used_bytes},
        {"dram_retiring_bytes", totals.retiring_bytes},
        {"dram_capacity_bytes", totals.capacity_bytes},
        {"retiring_replica_count", retiring_.size()},
        {"active_session_count", active},
        {"segment_count", segments_.mounted().size()},
        {"expelled_segment_count", segments_.expelled_count()},
        {"unreported_segment_count", segments_.unreported_count()},
        {"dead_key_count", dead_count_},
        {"tombstone_count", told_.replicas.size() + told_.floors.size() + told_.keys.size()},
        {"expelled_incarnation_count", told_.expelled.size()},
        {"tenant_count", tenants_.count()},
        {"metadata_bytes", metadata_bytes()},
        {"max_keys", options_.max_keys},
        {"max_metadata_bytes", options_.max_metadata_bytes},
        {"journal_events_max", journal_.events_max()},
        {"journal_events_count", journal_.kept()},
        {"journal_events_dropped_total", journal_.dropped_copy_events() + journal_.dropped_pool_events()},
        {"settled_id", settled_id()},
        {"lookup_hits_total", counters_.lookup_hits},
        {"lookup_hit_bytes_total", counters_.lookup_hit_bytes},
        {"remembered_hits_total", counters_.remembered_hits},
        {"allocation_failures_total", counters_.allocation_failures},
        {"partial_allocations_total", counters_.partial_allocations},
        {"waits_for_space_total", counters_.waits_for_space},
        {"attempted_evictions_total", counters_.eviction_rounds},
        {"successful_evictions_total", counters_.eviction_successes},
        {"evicted_keys_total", counters_.evicted_keys},
        {"evicted_bytes_total", counters_.evicted_bytes},
        {"evicted_leased_keys_total", counters_.evicted_leased_keys},
        {"evicted_soft_pinned_keys_total", counters_.evicted_soft_pinned_keys},
        {"eviction_history_entries", figures.history_entries},
        {"eviction_history_bytes", policy_->bytes()},
        {"eviction_expected_hits_millionths", millionths(figures.expected_hits)},
        {"eviction_reachable_hits_millionths", millionths(figures.reachable_hits)},
        {"expired_keys_total", counters_.expired_keys},
        {"removed_keys_total", counters_.removed_keys},
        {"superseded_keys_total", counters_.superseded_keys},
        {"lost_keys_total", counters_.lost_keys},
        {"discarded_puts_total", counters_.puts_discarded},
        {"reaped_puts_total", counters_.puts_reaped},
        {"orphaned_puts_total", counters_.puts_orphaned},
        {"sessions_opened_total", counters_.sessions_opened},
        {"sessions_expired_total", counters_.sessions_expired},
        {"segments_mounted_total", counters_.segments_mounted},
        {"segments_expelled_total", counters_.segments_expelled},
        {"freed_replicas_total", counters_.freed_replicas},
        {"adopted_replicas_total", counters_.adopted_replicas},
        {"refused_replicas_total", counters_.refused_replicas},
        {"inventories_total", counters_.inventories},
        {"copies_started_total", counters_.copies_started},
        {"copies_committed_total", counters_.copies_committed},
        {"copied_bytes_total", counters_.copied_bytes},
        {"copies_failed_total", counters_.copies_failed},
        {"copies_timed_out_total", counters_.copies_timed_out},
        {"copies_abandoned_total", counters_.copies_abandoned},
        {"repairs_given_up_total", counters_.repairs_given_up},
        {"repair_searches_total", counters_.repair_searches},
        {"handed_over_keys_total", counters_.handed_over_keys},
        {"drained_segments_total", counters_.drained_segments},
        {"tasks_succeeded_total", counters_.tasks_succeeded},
        {"tasks_failed_total", counters_.tasks_failed},
        {"tombstone_lists_total", counters_.tombstone_lists},
        {"dead_keys_total", counters_.dead_keys},
        {"reconcile_checks_total", counters_.reconcile_checks},
        {"reconcile_mismatches_total", counters_.reconcile_mismatches},
        {"reconcile_orphans_total", counters_.reconcile_orphans},
        {"reconcile_ghosts_total", counters_.reconcile_ghosts},
        {"reconcile_given_up_total", counters_.comparisons_given_up},
        {"replayed_requests_total", counters_.replayed_requests},
        {"unreachable_reports_total", counters_.unreachable_reports},
        {"probes_total", counters_.probes},
        {"probe_failures_total", counters_.probe_failures},
        {"early_expiries_total", counters_.early_expiries},
        {"suspected_node_count", suspects_.size()},
    };
    for (std::size_t i = 1; i < kAbsenceNames.size(); ++i) {  // lookups ask no other tenant
        all.emplace_back("lookup_misses_" + std::string(kAbsenceNames[i]) + "_total", counters_.misses[i]);
    }
    for (std::size_t i = 0; i < Counters::kVerbs; ++i) {
        const char* verb = wire::verb_name(static_cast<wire::Verb>(i));
        const VerbCounters& counted = counters_.verbs[i];
        if (verb == nullptr || counted.requests == 0) continue;
        const std::string name(verb);
        all.emplace_back(name + "_requests_total", counted.requests);
        all.emplace_back(name + "_failures_total", counted.failures);
        all.emplace_back(name + "_partial_successes_total", counted.partial_successes);
        all.emplace_back(name + "_items_total", counted.items);
        all.emplace_back(name + "_failed_items_total", counted.failed_items);
    }
    return all;
}

}  // namespace mooncake::metadata
