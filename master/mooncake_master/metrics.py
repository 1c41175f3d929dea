"""The master's numbers for Prometheus and for the log's summary line.

Owns names and help texts. The numbers are the native master's, read when asked: nothing is counted twice.
Names are Mooncake's where it has the metric, for dashboards' sake; others are the native name behind
`master_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mooncake_store import _core
from mooncake_store._version import __version__

VERB_NAMES: Final = {
    "create_copy_task": "create_copy_task",
    "create_move_task": "create_move_task",
    "exists": "exist_key",
    "drain": "drain_segment",
    "heartbeat": "ping",
    "inspect": "inspect",
    "inventory": "inventory",
    "list": "list",
    "lookup": "get_replica_list",
    "match_prefix": "match_prefix",
    "mount": "mount_segment",
    "open_session": "open_session",
    "put_end": "put_end",
    "put_revoke": "put_revoke",
    "put_start": "put_start",
    "query_task": "query_task",
    "release": "release",
    "remove": "remove",
    "report": "report",
    "touch": "touch",
    "unmount": "unmount_segment",
    "why": "why",
}
"""The native verb and its name in metrics. Every request here is a batch, so there are no `batch_` twins."""

VERB_COUNTERS: Final = {
    "requests_total": "Requests of {verb}",
    "failures_total": "Requests of {verb} that were refused, or none of whose items succeeded",
    "partial_successes_total": "Requests of {verb} of which some items failed",
    "items_total": "Items (keys, ids) in requests of {verb}",
    "failed_items_total": "Items in requests of {verb} that failed; of reads, the misses",
}

NAMES: Final = {
    "active_session_count": "master_active_clients",
    "allocation_failures_total": "master_put_start_alloc_failures_total",
    "discarded_puts_total": "master_put_start_discard_cnt",
    "evicted_bytes_total": "master_evicted_size_bytes",
    "evicted_keys_total": "master_evicted_key_count",
    "lookup_hit_bytes_total": "mem_cache_hit_bytes_total",
    "lookup_hits_total": "mem_cache_hit_nums_",
    "partial_allocations_total": "master_put_start_partial_allocations_total",
}
"""Native names that Mooncake has under another one."""

HELP: Final = {
    "active_session_count": "Sessions that are alive",
    "adopted_replicas_total": "Replicas of an earlier reign that nodes told and the index took in",
    "after_term_refusals_total": "Requests refused because this master's term was over (--enable_ha)",
    "allocated_bytes": "Bytes charged to segments: live, unfinished and retiring replicas",
    "allocation_failures_total": "Puts refused because no segment had room",
    "attempted_evictions_total": (
        "Rounds of eviction, begun at the watermark, for a put without room or for a limit"
    ),
    "busy_answers_total": "Calls answered Busy because parked_calls_max or parked_bytes_max was reached",
    "clock_dropped_ms": "Time the bounded clock did not count, because this process had not run",
    "confirm_wait_timeouts_total": (
        "Removes answered before their node confirmed: remove_confirm_timeout_ms passed"
    ),
    "connected_sessions_count": "Sessions with an open control connection",
    "copied_bytes_total": "Bytes of values that were copied from node to node",
    "copies_abandoned_total": "Copies given up because their value ended or a node of theirs left",
    "copies_committed_total": (
        "Replicas made by copying: repaired, handed over by a node that leaves, or for a task"
    ),
    "copies_failed_total": "Copies that a node could not make",
    "copies_started_total": "Copies that nodes were told to make",
    "copies_timed_out_total": "Copies given up because their node did not answer in time",
    "copy_count": "Copies from node to node that are under way",
    "copy_refusals_total": "Commands to copy that a node refused; its connection is closed",
    "dead_key_count": "Keys that ended while nodes may still come with older values of them",
    "dead_keys_total": "Keys taken in during a rebuild that a node told later are dead",
    "discarded_puts_total": "Unfinished puts that another put replaced after put_start_discard_timeout",
    "deposed_by_epoch": "Epoch of a later master that nodes follow: this one stepped down; 0: none",
    "drained_segments_total": "Segments whose node said that it would leave",
    "draining_segment_count": "Segments whose node is about to leave: nothing is placed there",
    "dram_capacity_bytes": "Capacity of all mounted segments of memory",
    "dram_retiring_bytes": "Bytes of memory told to go and not yet reported free",
    "dram_used_bytes": "Bytes of memory charged to live and unfinished replicas",
    "early_expiries_total": (
        "Nodes expelled before client_ttl: neither clients nor the master reached them, nor did they report"
    ),
    "epoch": "Number of this master's reign",
    "evicted_bytes_total": "Bytes that were charged for the objects evicted",
    "eviction_expected_hits_millionths": (
        "Of a million blocks asked for, those that the eviction policy expects to find in this memory; "
        "0: it is lru, or has learnt nothing yet"
    ),
    "eviction_history_bytes": "Memory that the eviction policy takes, at most 64 bytes for each object",
    "eviction_history_entries": "Keys that the eviction policy remembers, whether they are there or not",
    "eviction_reachable_hits_millionths": (
        "The same with memory without an end, as far as it remembers: what more memory could bring at most"
    ),
    "evicted_keys_total": "Objects evicted, for want of room or at a limit",
    "evicted_leased_keys_total": (
        "Objects evicted although a lookup or exists had asked to keep them: the pool is too small"
    ),
    "evicted_soft_pinned_keys_total": "Soft-pinned objects evicted, for nothing else was left",
    "expelled_incarnation_count": "Processes that left the pool unheard: not taken in with what they hold",
    "expelled_segment_count": "Segments that left the pool and whose replicas are still being dropped",
    "expired_keys_total": "Objects that ended because their ttl_ms passed",
    "freed_replicas_total": "Replicas whose node reported their range free",
    "handed_over_keys_total": "Objects moved to other nodes because theirs was about to leave",
    "handover_queue_count": "Objects that wait to be moved from a node that is about to leave",
    "hard_pin_key_count": "Objects that are never evicted",
    "inventories_total": "Nodes that have told all they held from an earlier reign",
    "journal_events_count": "Events that the journal holds for `mooncake stat` and `mooncake events`",
    "journal_events_dropped_total": "Events that the journal has forgotten, the oldest first",
    "journal_events_max": "Events of values that the journal keeps (--journal_events), 32 bytes each",
    "key_count": "Objects in the index",
    "lane_busy_answers_total": (
        "Frames on the lane answered Busy because their connection had too many under way"
    ),
    "lane_connections_count": "Connections that are open on the lane",
    "lane_connections_total": "Connections that the lane accepted",
    "lane_frames_total": "Frames that arrived on the lane",
    "lane_malformed_total": (
        "Connections closed because of bytes that are no frame, or of a frame that did not parse"
    ),
    "lane_role_refusals_total": (
        "First frames and requests refused because their role may not use the lane, or not that verb"
    ),
    "lane_version_refusals_total": "Connections refused for a protocol version that does not meet ours",
    "lookup_hit_bytes_total": "Bytes of the values that lookup_hits_total counts",
    "lookup_hits_total": "Keys that lookups found, or that clients read where they remembered them",
    "lookup_misses_abandoned_total": "Keys that lookups missed because their put was not finished",
    "lookup_misses_evicted_total": "Keys that lookups missed because they were evicted",
    "lookup_misses_expired_total": "Keys that lookups missed because their ttl_ms had passed",
    "lookup_misses_lost_total": "Keys that lookups missed because their last copy went with its node",
    "lookup_misses_never_stored_total": "Keys that lookups missed and the master knows no end of",
    "lookup_misses_not_ready_total": "Keys that lookups missed because their put had not ended",
    "lookup_misses_rebuilding_total": (
        "Keys that lookups missed while nodes may still tell them to a restarted master"
    ),
    "lookup_misses_removed_total": "Keys that lookups missed because they were removed",
    "lookup_misses_unreachable_total": (
        "Keys that lookups missed because the asking client cannot reach their segments"
    ),
    "lost_keys_total": "Objects whose last copy went with its node",
    "max_keys": "The limit of master_key_count; at it the master evicts",
    "max_metadata_bytes": "The limit of master_metadata_bytes; at it the master evicts",
    "metadata_bytes": "Memory of the index; bounded by max_metadata_bytes",
    "orphaned_puts_total": "Unfinished puts revoked because their client went",
    "parked_bytes": "Bytes of the requests that wait for space or for a node's confirmation now",
    "parked_calls_count": "Calls that wait for space or for a node's confirmation now",
    "parked_calls_total": "Calls that had to wait for space or for a node's confirmation",
    "partial_allocations_total": "Puts that got fewer copies than they asked for",
    "probe_failures_total": "Probes of nodes that were not answered",
    "probes_total": "Nodes that the master dialled because a client reported them unreachable",
    "reaped_puts_total": "Unfinished puts given up after put_start_release_timeout",
    "refused_replicas_total": (
        "Replicas of an earlier reign that nodes were told to drop: outdated, ended since, or without room"
    ),
    "remembered_hits_total": "Of lookup_hits_total: read where an earlier lookup had found them",
    "removed_keys_total": "Objects that were removed",
    "repair_queue_count": "Objects that lost replicas and wait for new ones",
    "repair_searches_total": "Searches of the index for objects that lack replicas",
    "repairs_given_up_total": "Repairs put off: no node may take the copy, or copying failed again and again",
    "repeats_attached_total": "Repeated requests that joined the first one, which was still waiting",
    "reconcile_checks_total": "Reports of nodes whose counts of what they hold were compared with the index",
    "reconcile_ghosts_total": "Replicas forgotten because the node that should hold them does not",
    "reconcile_given_up_total": "Comparisons ended because the node did not list what it holds in client_ttl",
    "reconcile_mismatches_total": "Of those compared: that differed; node and master compare what they name",
    "reconcile_orphans_total": "Replicas that a node held and the index did not know; the node ended them",
    "replayed_requests_total": "Repeated requests answered with the first one's answer",
    "retire_commands_total": "Commands to end replicas that were sent to nodes, repetitions included",
    "retire_queue_count": "Replicas told to go that their node has not confirmed",
    "retire_refusals_total": "Commands to end replicas that a node refused; its connection is closed",
    "retiring_replica_count": "Replicas told to go whose range is not yet reported free",
    "segment_count": "Segments that are mounted",
    "segments_expelled_total": (
        "Segments that left the pool: unmounted, not heard for client_ttl, or their endpoint taken by another"
    ),
    "segments_mounted_total": "Segments that joined the pool",
    "sessions_expired_total": "Sessions not heard for client_ttl, or ended early (early_expiries_total)",
    "sessions_opened_total": "Sessions that clients and nodes opened",
    "settled_id": "Highest id at and below which no put or copy is unfinished",
    "soft_pin_key_count": "Objects that are soft-pinned",
    "space_wait_timeouts_total": "Puts that waited for space and did not get it within alloc_wait_ms",
    "stalled_nodes_total": "Nodes expelled because they left a retire unanswered for client_ttl",
    "successful_evictions_total": "Rounds of eviction that freed something",
    "superseded_keys_total": "Values that a newer put of their key replaced",
    "suspected_node_count": "Nodes that a client has reported unreachable",
    "tenant_count": "Tenants that the master knows",
    "tombstone_count": "Replicas and keys that a later master is told not to take in",
    "tombstone_lists_total": "Lists of tombstones that nodes handed over during the rebuild",
    "total_capacity_bytes": "Capacity of all mounted segments",
    "ttl_key_count": "Objects that end by themselves",
    "task_count": "Copy and move tasks that have not ended",
    "tasks_failed_total": "Copy and move tasks that failed",
    "tasks_succeeded_total": "Copy and move tasks that were carried out",
    "unfinished_put_count": "Puts that are started and not ended",
    "unreported_segment_count": "Segments whose node has not told all it holds: no puts go there yet",
    "unreachable_mounts_total": "Mounts refused: a data endpoint of the node could not be dialled back",
    "unreachable_reports_total": "Segments that clients reported as unreachable",
    "value_bytes": "Bytes of the values in the index, each counted once",
    "waits_for_space_total": "Keys of puts that waited for space that was being freed",
}
"""What each native number means. tests/master/test_metrics.py fails where one is missing."""


HA_HELP: Final = {
    "backend_failures_total": "Times that etcd or redis did not answer a question of the election",
    "elections_won_total": "Terms that this process began as the leader",
    "is_leader": "Whether this master leads; 0: it stands by",
    "term_left_seconds": "How long this leader may serve without another answer of the election",
    "terms_lost_total": "Terms that ended because they were not renewed in time, or a later master reigned",
    "terms_resigned_total": "Terms that this master gave back",
}
"""What each number of `ha.member.Member.stats` means; on the page they begin with master_ha_."""


class Numbers(Protocol):
    """Where the numbers come from: `_core.Master`."""

    def stats(self) -> dict[str, int]: ...
    def request_histograms(self) -> Mapping[str, tuple[int, int, int, tuple[int, ...]]]: ...


class MetricsPage:
    """Renders /metrics and the summary line from one native master."""

    def __init__(
        self,
        master: Numbers,
        *,
        identity: Callable[[], dict[str, str]],
        ha_numbers: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        """identity: labels of the info metric, such as the epoch. ha_numbers: of one that was elected."""
        self._master = master
        self._native = _NativeCollector(master, identity)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._native)
        if ha_numbers is not None:
            self._registry.register(_HaCollector(ha_numbers))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def render(self, segments: Iterable[Mapping[str, Any]] = ()) -> tuple[bytes, str]:
        """The page in Prometheus' text format and its content type. segments: of parse_segments_reply."""
        self._native.segments = list(segments)
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def summary(self) -> str:
        """One line for the log: memory, keys, and totals since the start."""
        stats = self._master.stats()
        used, capacity = stats.get("allocated_bytes", 0), stats.get("total_capacity_bytes", 0)
        share = f" ({100 * used / capacity:.1f} %)" if capacity else ""
        requests = " ".join(
            f"{verb}={stats[f'{verb}_requests_total']}"
            for verb in VERB_NAMES
            if stats.get(f"{verb}_requests_total")
        )
        return (
            f"memory {used} / {capacity} bytes{share} | keys {stats.get('key_count', 0)} "
            f"(soft-pinned {stats.get('soft_pin_key_count', 0)}) | "
            f"clients {stats.get('active_session_count', 0)} | "
            f"evicted {stats.get('evicted_keys_total', 0)} | requests {requests or 'none'}"
        )


class HaPage:
    """/metrics of a master that stands by."""

    def __init__(self, numbers: Callable[[], Mapping[str, float]]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_HaCollector(numbers))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def render(self) -> tuple[bytes, str]:
        """The page in Prometheus' text format and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class _HaCollector(Collector):
    def __init__(self, numbers: Callable[[], Mapping[str, float]]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        for name, value in self._numbers().items():
            yield _family(f"master_ha_{name}", HA_HELP[name], value)


class _NativeCollector(Collector):
    def __init__(self, master: Numbers, identity: Callable[[], dict[str, str]]) -> None:
        self._master = master
        self._identity = identity
        self.segments: list[Mapping[str, Any]] = []

    def collect(self) -> Iterator[Metric]:
        stats = self._master.stats()
        yield from _verb_counters(stats)
        for name, value in stats.items():
            yield _family(NAMES.get(name, f"master_{name}"), HELP.get(name, name), value)
        yield _latencies(self._master.request_histograms())
        yield from _segment_gauges(self.segments)
        labels = {"version": __version__, **self._identity()}
        info = GaugeMetricFamily("master_info", "Who answers; the value is always 1", labels=list(labels))
        info.add_metric(list(labels.values()), 1)
        yield info


def _verb_counters(stats: dict[str, int]) -> Iterator[Metric]:
    """The counters of every verb, zeros too, so that a rate has a beginning; takes them out of `stats`."""
    for verb, public in VERB_NAMES.items():
        for suffix, text in VERB_COUNTERS.items():
            value = stats.pop(f"{verb}_{suffix}", 0)
            yield _family(f"master_{public}_{suffix}", text.format(verb=verb), value)


def _family(name: str, text: str, value: float) -> Metric:
    if name.endswith("_total"):
        return CounterMetricFamily(name.removesuffix("_total"), text, value=value)
    return GaugeMetricFamily(name, text, value=value)


def _latencies(histograms: Mapping[str, tuple[int, int, int, tuple[int, ...]]]) -> Metric:
    family = HistogramMetricFamily(
        "master_request_seconds",
        "From a request's arrival to its answer, waiting for nodes included",
        labels=["verb"],
    )
    edges = [str(edge / 1e6) for edge in _core.Master.LATENCY_EDGES_US] + ["+Inf"]
    for verb, (_, _, sum_us, counts) in histograms.items():
        total = 0
        buckets = []
        for edge, count in zip(edges, counts, strict=True):
            total += count
            buckets.append((edge, total))
        family.add_metric([verb], buckets, sum_value=sum_us / 1e6)
    return family


def _segment_gauges(segments: list[Mapping[str, Any]]) -> Iterator[Metric]:
    for name, text, field in (
        ("segment_allocated_bytes", "Bytes charged to the segment", "charged_bytes"),
        ("segment_total_capacity_bytes", "Capacity of the segment", "capacity_bytes"),
        ("segment_retiring_bytes", "Bytes told to go and not yet reported free", "retiring_bytes"),
    ):
        family = GaugeMetricFamily(name, text, labels=["segment"])
        for segment in segments:
            family.add_metric([segment["name"]], segment[field])
        yield family
