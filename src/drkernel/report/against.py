"""Candidate above reference on one scale of time: each kernel and operator a bar, as wide as it is long."""

from __future__ import annotations

from markupsafe import Markup, escape

from drkernel.gym.feedback import duration, percent
from drkernel.verdict import Profile

WIDTH, ROW, GAP, LETTER = 1000.0, 26, 30, 6.6
"""of the picture, of a track, between the tracks' tops less a track, of a letter"""


def against(profile: Profile | None, reference: Profile | None) -> Markup:
    """Both profiles' device time, the costliest first, with the host's waits at the end; empty where one is missing."""
    if profile is None or reference is None:
        return Markup()
    longest = max(profile.elapsed_seconds, reference.elapsed_seconds)
    if longest <= 0:
        return Markup()
    parts = [*_track("candidate", profile, longest, 0), *_track("reference", reference, longest, ROW + GAP)]
    height = 2 * (ROW + GAP) - 8
    return Markup(
        f'<div class="scroll"><svg viewBox="0 0 {WIDTH:.0f} {height}" class="timeline against" role="img" '
        f'aria-label="candidate and reference on one scale of time">{"".join(parts)}</svg></div>'
        f'<p class="dim">One call of each on one scale ({profile.kind}, {escape(profile.device)}), the costliest '
        "first. Green: own kernels, yellow: PyTorch, red: copies, grey: the device waits for the host.</p>"
    )


def _track(name: str, profile: Profile, longest: float, top: float) -> list[str]:
    """SVG of one profile: its name and length, and a bar for each row."""
    scale, x = WIDTH / longest, 0.0
    parts = [f'<text x="0" y="{top + 13}" class="label">{name} {escape(duration(profile.elapsed_seconds))}</text>']
    rows = [(row.name, row.seconds, f"var(--{row.owner})") for row in sorted(profile.rows, key=lambda r: -r.seconds)]
    waits = profile.elapsed_seconds - sum(seconds for _, seconds, _ in rows)
    if waits > 0.005 * longest:
        rows.append(("waiting for the host", waits, "var(--line)"))
    for kernel, seconds, colour in rows:
        width = max(0.8, seconds * scale)
        label = f"{kernel}: {duration(seconds)}, {percent(seconds / profile.elapsed_seconds)}"
        parts.append(
            f'<rect x="{x:.2f}" y="{top + 19}" width="{max(0.6, width - 1):.2f}" height="{ROW - 4}" rx="2" '
            f'fill="{colour}"><title>{escape(label)}</title></rect>'
        )
        if width > LETTER * len(kernel) + 8 and not colour.endswith("line)"):
            parts.append(f'<text x="{x + 5:.2f}" y="{top + 34}" class="span">{escape(kernel)}</text>')
        x += width
    return parts
