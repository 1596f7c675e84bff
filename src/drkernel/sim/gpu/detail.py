"""Where the time of a launch goes: its limits, its occupancy, its lines; from its entry in the journal."""

from __future__ import annotations

from functools import lru_cache

from drkernel.sim.cost.caches import L2State
from drkernel.sim.cost.launch_time import residence
from drkernel.sim.cost.lines import source_lines
from drkernel.sim.cost.records import CostEstimate
from drkernel.sim.cost.roofline import unit_rate
from drkernel.sim.gpu.device_journal import TOO_LONG, JournalPricer, LaunchEntry, entries_of
from drkernel.sim.gpu.pricing import pressure_of, price_launch, profile_of_text
from drkernel.sim.spec import GPUSpec, get_spec
from drkernel.verdict import OWN_FILE, LaunchDetail, Profile
from ttir_executor.compiled import LaunchStats, compile_ttir

MAX_TEXT = 200
"""most characters of a line that are kept"""


def detail_of(entry: LaunchEntry, cost: CostEstimate, spec: GPUSpec) -> LaunchDetail:
    """Break down a launch that took ``cost``."""
    threads = entry.num_warps * spec.warp_size
    registers = pressure_of(entry.ttir, threads).registers
    shared = 0
    if entry.resources is not None:
        registers, shared = entry.resources.registers or registers, entry.resources.shared_bytes or 0
    room = residence(spec, entry.num_warps, shared, registers)
    limited_by = min(room, key=lambda name: room[name])
    resident = max(1, room[limited_by])
    there = -(-entry.stats.programs // spec.sm_count)
    if there < resident:
        resident, limited_by = there, "the grid"
    lines = source_lines(
        compile_ttir(entry.ttir).function, profile_of_text(entry.ttir).blocks, entry.stats, cost.parts, cost.seconds,
        threads=threads, spec=spec, price=lambda stats: _price(entry, stats, spec),
    )  # fmt: skip
    flops = {unit: count for unit, count in cost.flops.items() if unit not in ("int", "sfu")}
    return LaunchDetail(
        kernel=entry.name,
        programs=entry.stats.programs,
        num_warps=entry.num_warps,
        num_stages=entry.num_stages,
        seconds=cost.seconds,
        limits=cost.parts,
        resident=resident,
        occupancy=min(1.0, resident * threads / spec.max_threads_per_sm),
        limited_by=limited_by,
        registers=registers,
        shared_bytes=shared,
        dram_bytes=cost.dram_bytes,
        operations=cost.total_flops,
        unit=max(flops, key=lambda unit: flops[unit] / unit_rate(unit, spec), default="fp32"),
        lines=lines,
    )


def _price(entry: LaunchEntry, stats: LaunchStats, spec: GPUSpec) -> float:
    cost = price_launch(entry.ttir, entry.num_warps, entry.num_stages, stats, entry.resources, spec, L2State(spec))
    return cost.seconds


@lru_cache(maxsize=8)
def details(spec_name: str, text: str) -> dict[str, LaunchDetail]:
    """The slowest launch of each kernel in a journal, by name. Raises :class:`ProtocolError` for what is no journal."""
    if text == TOO_LONG:
        return {}
    spec = get_spec(spec_name)
    clock, slowest = JournalPricer(spec), dict[str, tuple[LaunchEntry, CostEstimate]]()
    for entry in entries_of(text):
        cost = clock.add(entry)
        if isinstance(entry, LaunchEntry) and cost is not None and not cost.unpriced:
            known = slowest.get(entry.name)
            slowest[entry.name] = known if known is not None and known[1].seconds >= cost.seconds else (entry, cost)
    return {name: detail_of(entry, cost, spec) for name, (entry, cost) in slowest.items()}


def detailed(profile: Profile, spec_name: str, text: str, source: str) -> Profile:
    """``profile`` of a journal with the details of own kernels, whose lines are those of a module :data:`OWN_FILE` with
    the text ``source``, or of installed packages."""
    found, lines = details(spec_name, text), source.splitlines()
    rows = tuple(
        row.model_copy(update={"detail": _quoted(found[row.name], lines)})
        if row.owner == "custom" and row.name in found
        else row
        for row in profile.rows
    )
    return profile.model_copy(update={"rows": rows})


def _quoted(detail: LaunchDetail, source: list[str]) -> LaunchDetail:
    lines = []
    for line in detail.lines:
        if line.file.rpartition("/")[2] == OWN_FILE:
            text = source[line.line - 1].strip()[:MAX_TEXT] if 0 < line.line <= len(source) else ""
            line = line.model_copy(update={"file": OWN_FILE, "text": text})
        lines.append(line)
    return detail.model_copy(update={"lines": tuple(lines)})
