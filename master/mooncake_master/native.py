"""Makes the native master that a configuration describes.

Owns the mapping from our flags to `_core.Master`'s settings, and the text of its failure to listen.
"""

from __future__ import annotations

from mooncake_master.config import MasterConfig
from mooncake_store import _core
from mooncake_store._version import __version__
from mooncake_store.endpoints import Endpoint
from mooncake_store.ports import cannot_listen


def start_native(
    config: MasterConfig,
    *,
    lane_host: str,
    epoch: int,
    tombstones: bytes = b"",
    keeps_tombstones: bool = False,
) -> _core.Master:
    """A started native master; its lane listens. Raises StoreError naming --lane_port when it cannot."""
    native = _core.Master(
        lane_host=lane_host,
        lane_port=config.lane_port,
        lane_threads=config.lane_thread_count(),
        software=__version__,
        epoch=epoch,
        keeps_tombstones=keeps_tombstones,
        client_ttl_ms=config.client_ttl_ms,
        session_grace_ms=config.session_grace_ms,
        clock_step_max_ms=config.clock_step_max_ms,
        lease_ttl_ms=config.default_kv_lease_ttl_ms,
        exists_hold_ms=config.exists_hold_ms,
        soft_pin_ms=config.default_kv_soft_pin_ttl_ms,
        soft_pin_max_ms=config.max_kv_soft_pin_ttl_ms,
        put_start_discard_ms=config.put_start_discard_timeout_ms,
        put_start_release_ms=config.put_start_release_timeout_ms,
        alloc_wait_ms=config.alloc_wait_ms,
        dial_back=config.dial_back,
        remove_confirm_timeout_ms=config.remove_confirm_timeout_ms,
        allocation=config.allocation_strategy,
        eviction_high_watermark_ratio=config.eviction_high_watermark_ratio,
        eviction_ratio=config.eviction_ratio,
        eviction_policy=config.eviction_policy,
        evict_soft_pinned=config.allow_evict_soft_pinned_objects,
        repair_low_watermark_ratio=config.repair_low_watermark_ratio,
        repair_bytes_per_s=config.repair_bytes_per_s,
        copies_a_node_max=config.copies_a_node_max,
        tasks_pending_max=config.max_total_pending_tasks,
        tasks_finished_max=config.max_total_finished_tasks,
        task_attempts_max=config.max_retry_attempts,
        task_pending_timeout_ms=config.pending_task_timeout_ms,
        task_processing_timeout_ms=config.processing_task_timeout_ms,
        max_keys=config.max_keys,
        max_metadata_bytes=config.max_metadata_bytes,
        replay_window=config.replay_window,
        journal_events=config.journal_events,
    )
    native.restore_tombstones(tombstones or _core.encode_tombstones())
    try:
        native.start()
    except OSError as error:
        raise cannot_listen(Endpoint(lane_host, config.lane_port), "--lane_port", error) from error
    return native
