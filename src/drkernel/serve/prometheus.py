"""The service's Prometheus metrics, read from the service on every scrape."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from drkernel.serve.service import Service


def exposition(service: Service) -> str:
    """Return all metrics in Prometheus text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(service))
    return generate_latest(registry).decode()


class _Figures:
    """Collects the metrics of one service."""

    def __init__(self, service: Service):
        self.service = service

    def collect(self) -> Iterable[Metric]:
        """Yield every metric with its current samples."""
        counts, workers = self.service.store.counts(), list(self.service.workers.values())
        jobs = GaugeMetricFamily("drkernel_jobs", "Jobs by state.", labels=["state"])
        for state, number in {"queued": 0, "leased": 0, "done": 0, "cancelled": 0, **counts["state"]}.items():
            jobs.add_metric([state], number)
        verdicts = GaugeMetricFamily("drkernel_verdicts", "Kept verdicts by status.", labels=["status"])
        for status, number in counts["status"].items():
            verdicts.add_metric([status], number)
        throughput = GaugeMetricFamily("drkernel_throughput", "Verdicts a second over the last minute.")
        throughput.add_metric([], self.service.throughput())
        latency = GaugeMetricFamily(
            "drkernel_latency_seconds", "Seconds from submission to verdict, latest verdicts.", labels=["quantile"]
        )
        for quantile, seconds in self.service.latency().items():
            latency.add_metric([quantile.replace("p", "0.")], seconds)
        slots = GaugeMetricFamily("drkernel_worker_slots", "Slots by worker.", labels=["worker", "kind"])
        done = CounterMetricFamily("drkernel_worker_done", "Evaluations by worker.", labels=["worker"])
        failed = CounterMetricFamily("drkernel_worker_failed", "Infrastructure errors by worker.", labels=["worker"])
        shut_out = GaugeMetricFamily("drkernel_worker_quarantined", "1 when shut out.", labels=["worker"])
        for worker in workers:
            slots.add_metric([worker.name, worker.kind], worker.slots)
            done.add_metric([worker.name], worker.done)
            failed.add_metric([worker.name], worker.failed)
            shut_out.add_metric([worker.name], worker.quarantined)
        return [jobs, verdicts, throughput, latency, slots, done, failed, shut_out]
