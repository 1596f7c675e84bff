"""A verdict as one self-contained HTML page: no script, no network, light and dark, every text escaped."""

from __future__ import annotations

from html import escape
from pathlib import Path

from drkernel.gym.feedback import duration, number, percent
from drkernel.task import Task, sized_reference
from drkernel.verdict import Finding, Profile, Verdict

STYLE = """
:root { color-scheme: light dark; --line: #8884; --custom: #2a9d5c; --library: #d99a1c; --copy: #c8463c; --dim: #888; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; border-bottom: 1px solid var(--line); }
.status { padding: .15em .6em; border-radius: .3em; color: #fff; background: #b3362c; }
.status.correct { background: #23814c; } .status.hack { background: #7d3aa0; }
.status.infra_error, .status.invalid_request { background: #946b00; } .status.unsupported { background: #3b6ea5; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; margin: 1rem 0; }
.figures b { display: block; font-size: 1.6rem; line-height: 1.2; } .figures span, .dim { color: var(--dim); }
table { border-collapse: collapse; width: 100%; } td, th { padding: .2rem .6rem .2rem 0; text-align: left; }
td.r, th.r { text-align: right; font-variant-numeric: tabular-nums; }
.bar { height: .8em; border-radius: 2px; min-width: 1px; }
.custom { background: var(--custom); } .library { background: var(--library); } .copy { background: var(--copy); }
.scroll { overflow-x: auto; } pre { font: 13px/1.45 ui-monospace, monospace; margin: 0; }
pre .n { color: var(--dim); user-select: none; }
pre .hit { background: #d3302f33; display: inline-block; min-width: 100%; }
details > summary { cursor: pointer; margin: .5rem 0; } .hack { color: #a24fd0; } .bug { color: #d0453c; }
"""


def write_page(path: Path, verdict: Verdict, *, task: Task, candidate: str, profile: str | None) -> None:
    """Write the page of ``verdict``; the directory must exist."""
    path.write_text(page(verdict, task=task, candidate=candidate, profile=profile), encoding="utf-8")


def page(
    verdict: Verdict, *, task: Task, candidate: str, profile: str | None, before: str = "", after: str = ""
) -> str:
    """The page as text; the reference is shown at the size ``profile`` that it was graded at.

    ``before`` and ``after`` are HTML that a caller adds at the top and before the sources.
    """
    title = f"{verdict.task_id}: {verdict.status.replace('_', ' ')}"
    line = verdict.error.line if verdict.error else None
    body = [
        before,
        f"<h1><span class='status {verdict.status}'>{escape(verdict.status.replace('_', ' '))}</span> "
        f"{escape(verdict.task_id)}</h1>",
        _figures(verdict),
        _trouble(verdict),
        _findings(verdict.findings),
        _not_checked(verdict),
        profile_section("Device time of one call", verdict.profile),
        profile_section("The reference's device time", verdict.reference_profile),
        after,
        f"<h2>Candidate</h2>{code_block(candidate, line)}",
        f"<details><summary>Reference</summary>{code_block(sized_reference(task, profile), None)}</details>",
        _printed(verdict),
        _footer(verdict),
    ]
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _figures(verdict: Verdict) -> str:
    items: list[tuple[str, str]] = []
    if verdict.speedup is not None:
        speedup = verdict.speedup
        interval = f" [{speedup.low:.2f}, {speedup.high:.2f}]"
        items.append((f"{speedup.value:.2f}x", f"speedup over {verdict.baseline}, {speedup.kind}{interval}"))
    if verdict.timing is not None and verdict.reference_timing is not None:
        items.append((duration(verdict.timing.seconds), f"against {duration(verdict.reference_timing.seconds)}"))
    if verdict.coverage is not None:
        told = ", as the candidate's process tells" if verdict.coverage_source == "runner" else ""
        items.append((percent(verdict.coverage), "of device time in own kernels" + told))
    if verdict.correctness is not None and verdict.correctness.checked_calls:
        right = f"{verdict.correctness.passed_calls}/{verdict.correctness.checked_calls}"
        items.append((right, "checked calls right"))
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(label)}</span></div>" for value, label in items)
    return f"<div class='figures'>{cells}</div>"


def _trouble(verdict: Verdict) -> str:
    parts = []
    if verdict.error is not None:
        where = f" at line {verdict.error.line}" if verdict.error.line else ""
        parts.append(f"<p><b>{escape(verdict.error.type)}{where}</b>: {escape(verdict.error.message)}</p>")
        if verdict.error.traceback:
            parts.append(f"<div class='scroll'><pre>{escape(verdict.error.traceback)}</pre></div>")
    if verdict.correctness is not None and verdict.correctness.message:
        parts.append(f"<p>{escape(verdict.correctness.message)}</p>")
    worst = verdict.correctness.mismatch if verdict.correctness else None
    if worst is not None:
        parts.append(
            f"<p>Worst element: output {worst.output} at {escape(str(list(worst.index)))} is {number(worst.actual)}, "
            f"expected {number(worst.expected)} ± {number(worst.tolerance)}; "
            f"{percent(worst.wrong_fraction)} of the elements are wrong.</p>"
        )
    return "".join(parts)


def _findings(findings: tuple[Finding, ...]) -> str:
    if not findings:
        return ""
    rows = []
    for finding in findings:
        evidence = "; ".join(f"{name}: {value}" for name, value in finding.evidence.items())
        rows.append(
            f"<tr><td class='{finding.severity}'>{finding.severity}</td><td><b>{escape(finding.kind)}</b></td>"
            f"<td>{escape(finding.message)}<div class='dim'>{escape(evidence)}</div></td></tr>"
        )
    return f"<h2>Findings</h2><table>{''.join(rows)}</table>"


def _not_checked(verdict: Verdict) -> str:
    """The checks that the device does not allow."""
    if not verdict.not_checked:
        return ""
    rows = "".join(
        f"<tr><td><b>{escape(item.check)}</b></td><td>{escape(item.why)}</td></tr>" for item in verdict.not_checked
    )
    return f"<h2>Not checked on {escape(verdict.device)}</h2><table>{rows}</table>"


def profile_section(title: str, profile: Profile | None) -> str:
    """A heading and a table of kernels with bars; empty without a profile."""
    if profile is None:
        return ""
    rows = []
    for row in sorted(profile.rows, key=lambda row: -row.seconds):
        limit = f"{row.bound}-bound" if row.bound else ""
        if row.roofline is not None:
            limit += f", {percent(row.roofline)} of roofline"
        rows.append(
            f"<tr><td style='width:30%'><div class='bar {row.owner}' "
            f"style='width:{100 * min(1, row.share):.1f}%'></div></td><td>{escape(row.name)}</td>"
            f"<td class='r'>{row.calls}x</td><td class='r'>{duration(row.seconds)}</td>"
            f"<td class='r'>{percent(row.share)}</td><td class='dim'>{escape(limit)}</td></tr>"
        )
    head = f"{escape(title)}: {duration(profile.elapsed_seconds)} ({profile.kind}, {escape(profile.device)})"
    legend = (
        "<p class='dim'>green: own kernels, yellow: PyTorch, red: copies between host and device</p>" if rows else ""
    )
    return f"<h2>{head}</h2><div class='scroll'><table>{''.join(rows)}</table></div>{legend}"


def code_block(source: str, hit: int | None = None) -> str:
    """Numbered source, the line ``hit`` marked."""
    lines = []
    for number_, text in enumerate(source.splitlines(), 1):
        line = f"<span class='n'>{number_:4d}  </span>{escape(text)}"
        lines.append(f"<span class='hit'>{line}</span>" if number_ == hit else line)
    return "<div class='scroll'><pre>" + "\n".join(lines) + "</pre></div>"


def _printed(verdict: Verdict) -> str:
    if not verdict.stdout.strip():
        return ""
    return f"<h2>What it printed</h2><div class='scroll'><pre>{escape(verdict.stdout)}</pre></div>"


def _footer(verdict: Verdict) -> str:
    missing = "; ".join(f"without {layer}: {why}" for layer, why in verdict.sandbox.missing.items())
    layers = ", ".join(verdict.sandbox.layers) or "none"
    return (
        f"<p class='dim'>Sandbox: {escape(layers)}{'; ' + escape(missing) if missing else ''}. "
        f"Graded in {duration(verdict.seconds)}. Candidate SHA-256 {verdict.candidate_sha256[:16]}.</p>"
    )
