"""Where a launch's time goes, by source line and by limit, in words for terminal and pages."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from drkernel.gym.feedback import duration, facts, percent, place
from drkernel.verdict import LaunchDetail

SHOWN = 5
"""lines in the terminal"""
WORTH = 0.005
"""least share of the time for which a line gets a row"""
LIMITS = {
    "dram": "device memory", "l2": "L2", "sm_memory": "L1 and its port", "compute": "arithmetic", "atomics": "atomics",
    "chains": "latency", "dispatch": "dispatch", "fixed": "launch",
}  # fmt: skip
"""names of the limits of a launch, for people"""


def binding(detail: LaunchDetail) -> str:
    """The limit that decides a launch's time; "fixed" where starting it takes longest."""
    return max(detail.limits, key=lambda name: detail.limits[name])


def limits_text(detail: LaunchDetail) -> str:
    """The parts of a launch's time, and its occupancy of the device."""
    longest = binding(detail)
    first = "launch overhead" if longest == "fixed" else LIMITS[longest]
    return f"limited by {first}; {occupancy_text(detail)}"


def occupancy_text(detail: LaunchDetail) -> str:
    """Occupancy and what limits it."""
    programs = f"{detail.resident} program{'s' * (detail.resident != 1)} of {detail.num_warps} warps on an SM"
    return f"occupancy {percent(detail.occupancy)} ({programs}, limited by {detail.limited_by})"


def hottest(detail: LaunchDetail) -> RenderableType:
    """The costliest lines of a launch as a table."""
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    for justify in ("right", "left", "left", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right", overflow="fold")  # type: ignore[arg-type]
    lines = [line for line in detail.lines if line.share >= WORTH][:SHOWN]
    for line in lines:
        table.add_row(
            percent(line.share), Text(place(line), style="cyan"), Text(line.text[:60]),
            Text(", ".join(facts(line)), style="dim"),
        )  # fmt: skip
    rest = 1.0 - sum(line.share for line in lines)
    if rest >= WORTH:
        table.add_row(percent(rest), Text("other lines, starting and ending programs", style="dim"), "", "")
    summary = f"{duration(detail.seconds)} a launch, {limits_text(detail)}"
    return Group(Text(summary, style="dim"), table)
