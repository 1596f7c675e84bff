"""The service's figures in Prometheus' text format."""

from __future__ import annotations

from drkernel.serve.service import Service


def exposition(service: Service) -> str:
    """All metrics, as text."""
    counts = service.store.counts()
    lines: list[str] = []

    def family(name: str, kind: str, text: str, rows: list[tuple[dict[str, str], float]]) -> None:
        lines.append(f"# HELP drkernel_{name} {text}")
        lines.append(f"# TYPE drkernel_{name} {kind}")
        for labels, value in rows:
            inner = ",".join(f'{key}="{_escape(label)}"' for key, label in labels.items())
            lines.append(f"drkernel_{name}{{{inner}}} {value:g}" if inner else f"drkernel_{name} {value:g}")

    states = {"queued": 0, "leased": 0, "done": 0, "cancelled": 0, **counts["state"]}
    family("jobs", "gauge", "Jobs by state.", [({"state": s}, float(n)) for s, n in states.items()])
    family(
        "verdicts",
        "gauge",
        "Kept verdicts by status.",
        [({"status": s}, float(n)) for s, n in counts["status"].items()],
    )
    family("throughput", "gauge", "Verdicts a second over the last minute.", [({}, service.throughput())])
    latency = [({"quantile": q.replace("p", "0.")}, v) for q, v in service.latency().items()]
    family("latency_seconds", "gauge", "Seconds from submission to verdict, latest verdicts.", latency)
    workers = service.everybody()
    family(
        "worker_slots",
        "gauge",
        "Slots by worker.",
        [({"worker": w.name, "kind": w.kind}, float(w.slots)) for w in workers],
    )
    family(
        "worker_done_total", "counter", "Evaluations by worker.", [({"worker": w.name}, float(w.done)) for w in workers]
    )
    family(
        "worker_failed_total", "counter", "Infrastructure errors by worker.",
        [({"worker": w.name}, float(w.failed)) for w in workers],
    )  # fmt: skip
    family(
        "worker_quarantined", "gauge", "1 when shut out.", [({"worker": w.name}, float(w.quarantined)) for w in workers]
    )
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
