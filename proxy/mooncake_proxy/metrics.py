"""The proxy's numbers for Prometheus. Owns names and help texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mooncake_proxy.admission import Admission
from mooncake_proxy.config import ProxyConfig
from mooncake_proxy.fleet import Fleet, Role
from mooncake_store._version import __version__

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
PREFILL_OUTCOMES: Final = ("done", "failed", "none", "same_instance")


class ProxyMetrics:
    """Counters, and the page."""

    def __init__(self, config: ProxyConfig, fleet: Fleet, admission: Admission) -> None:
        registry = self._registry = CollectorRegistry(auto_describe=False)
        self.requests = Counter(
            "proxy_requests", "Requests by path and status of the answer", ["path", "code"], registry=registry
        )
        self.refusals = Counter(
            "proxy_refusals", "Answers of the proxy's own, by cause", ["reason"], registry=registry
        )
        prefills = Counter(
            "proxy_prefills",
            "Prefill phases: done; failed or none there, so that decode computed the prompt; or both in one",
            ["outcome"],
            registry=registry,
        )
        self.prefills = {outcome: prefills.labels(outcome) for outcome in PREFILL_OUTCOMES}
        retries = Counter(
            "proxy_retries", "Requests tried at a further instance", ["role"], registry=registry
        )
        self.retries = {role: retries.labels(role.value) for role in Role}
        self.clients_left = Counter(
            "proxy_clients_left", "Requests whose client left before the answer's end", registry=registry
        )
        self.broken_streams = Counter(
            "proxy_broken_streams", "Answers broken off because their instance failed", registry=registry
        )
        self.prefill_seconds = Histogram(
            "proxy_prefill_seconds", "Of prefill phases that were done", buckets=SECONDS, registry=registry
        )
        self.first_byte_seconds = Histogram(
            "proxy_first_byte_seconds",
            "From a request's arrival to the first byte of its answer",
            buckets=SECONDS,
            registry=registry,
        )
        registry.register(_State(config, fleet, admission))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

    def render(self) -> tuple[bytes, str]:
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class _State(Collector):
    """What is read off when asked."""

    def __init__(self, config: ProxyConfig, fleet: Fleet, admission: Admission) -> None:
        self._config = config
        self._fleet = fleet
        self._admission = admission

    def collect(self) -> Iterator[Metric]:
        for name, text, value in (
            ("proxy_requests_running", "Requests under way", self._admission.running),
            ("proxy_requests_max", "Bound of them (--requests_max)", self._config.requests_max),
            ("proxy_bodies_bytes", "Bytes of bodies held", self._admission.bodies_bytes),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        well = GaugeMetricFamily(
            "proxy_instance_well", "1: it is in the rotation", labels=["role", "instance"]
        )
        running = GaugeMetricFamily("proxy_instance_requests_running", "Requests at it", labels=["instance"])
        requests = CounterMetricFamily("proxy_instance_requests", "Requests sent to it", labels=["instance"])
        failures = CounterMetricFamily(
            "proxy_instance_failures", "Those that failed there, or got a 5xx", labels=["instance"]
        )
        for instance, roles in self._fleet.all():
            for role in roles:
                well.add_metric([role.value, instance.name], int(instance.is_well))
            running.add_metric([instance.name], instance.running)
            requests.add_metric([instance.name], instance.totals["requests"])
            failures.add_metric([instance.name], instance.totals["failures"])
        yield from (well, running, requests, failures)
        labels = {"version": __version__, "model": self._config.model, "scheduling": self._config.scheduling}
        info = GaugeMetricFamily("proxy_info", "Who answers; the value is always 1", labels=list(labels))
        info.add_metric(list(labels.values()), 1)
        yield info
