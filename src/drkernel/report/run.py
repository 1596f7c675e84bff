"""A training run as one self-contained HTML page: no script, no network, light and dark, every text escaped."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import yaml

from drkernel.report.run_data import Row, RunData, read_run
from drkernel.report.run_samples import side_by_side
from drkernel.report.svg import Line, bar_rows, line_plot, scatter_plot, stacked_plot

STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #808080; --good: #23814c; --bad: #b3362c;
--c1: #4a78c2; --c2: #d9822b; --c3: #2a9d5c; --c4: #b3362c; --c5: #8a5fbf; --c6: #a08000; --c7: #3aa6a6;
--c8: #7f8c4f; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: .2rem; }
h2 { font-size: 1.1rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
.dim { color: var(--dim); } .note { border-left: 3px solid var(--line); padding-left: .8rem; }
.alarm { background: #b3362c; color: #fff; padding: .8rem 1rem; border-radius: 4px; font-weight: 600; }
table { border-collapse: collapse; } td, th { padding: .2rem .9rem .2rem 0; text-align: left; }
td.r, th.r { text-align: right; font-variant-numeric: tabular-nums; } .scroll { overflow-x: auto; }
.up { color: var(--good); } .down { color: var(--bad); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1.2rem 2rem; }
figure { margin: 0; } figcaption { font-weight: 600; margin-bottom: .3rem; } svg { width: 100%; height: auto; }
svg text { fill: currentColor; } .tick { font: 11px system-ui, sans-serif; opacity: .75; }
.label { font: 12px system-ui, sans-serif; }
.grid { stroke: #8883; } .guide { stroke: currentColor; stroke-dasharray: 4 4; opacity: .6; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: 13px; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em; }
.bars { display: grid; grid-template-columns: minmax(6rem, auto) 1fr auto; gap: .25rem .8rem; align-items: center; }
.bar i { display: block; height: .8em; background: #4a78c2; border-radius: 2px; min-width: 1px; }
.bar-value { font-variant-numeric: tabular-nums; }
pre { font: 12.5px/1.45 ui-monospace, monospace; overflow-x: auto; margin: 0; padding: .6rem; background: #8881;
border-radius: 4px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem;
margin: .8rem 0 1.6rem; }
.verdict { font-weight: 600; margin: .2rem 0; } details > summary { cursor: pointer; margin: .6rem 0; }
"""

_STATUS = {
    "correct": "var(--c3)",
    "incorrect": "var(--c2)",
    "compile_error": "var(--c1)",
    "runtime_error": "var(--c5)",
    "timeout": "var(--c6)",
    "out_of_memory": "var(--c7)",
    "hack": "var(--c4)",
    "unsupported": "var(--c8)",
    "infra_error": "var(--dim)",
    "invalid_request": "var(--dim)",
}
"""statuses from the bottom of the plot up, with their colours"""

_INTRO = (
    "A language model learns to rewrite PyTorch modules as Triton GPU kernels. It answers, the judge compiles, checks "
    "and times the answer, the model reads the feedback and answers again; reinforcement learning (RL) makes answers "
    "with a higher reward more likely. <i>fast_p</i> is the share of tasks solved correctly and more than p times as "
    "fast as PyTorch."
)

_FIGURES = (
    ("fast_0", "correct (fast_0)"),
    ("fast_1", "faster than PyTorch (fast_1)"),
    ("fast_1.2", "more than 1.2× as fast (fast_1.2)"),
    ("fast_2", "more than 2× as fast (fast_2)"),
    ("coverage", "coverage of the correct"),
    ("speedup", "speedup of the correct, mean"),
    ("hack_rate", "condemned as hacks"),
)


def write_report(run_dir: Path) -> Path:
    """Write ``report.html`` into a run directory; its path.

    Raises:
        RunError: the directory is no run, or its files are damaged.
    """
    data = read_run(Path(run_dir))
    path = data.directory / "report.html"
    temporary = path.with_suffix(".html.tmp")
    temporary.write_text(page(data), encoding="utf-8")
    os.replace(temporary, path)
    return path


def page(data: RunData) -> str:
    """The page as text."""
    name = data.directory.name
    body = [
        f"<h1>{escape(name)}</h1>",
        _alarm(data),
        f"<p>{_INTRO}</p>",
        _facts(data),
        _headline(data),
        _curves(data),
        _turns(data),
        _families(data),
        _status_and_coverage(data),
        _corrections(data),
        side_by_side(data),
        f"<h2>Recipe</h2><details><summary>config.yaml</summary><pre>{escape(data.config)}</pre></details>",
    ]
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>drkernel run {escape(name)}</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _figure(title: str, plot: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{plot}</figure>"


def _alarm(data: RunData) -> str:
    """A banner when the judge's checks were off, finished run or not."""
    settings = ((yaml.safe_load(data.config) or {}).get("episode") or {}).get("settings") or {}
    if not settings.get("unsafe_no_checks"):
        return ""
    return (
        "<p class='alarm'>THE JUDGE'S CHECKS WERE SWITCHED OFF in this run (research flag "
        "<code>unsafe_no_checks</code>). Its grades are not honest: a hack counts as correct and fast. "
        "No figure on this page is a result.</p>"
    )


def _facts(data: RunData) -> str:
    summary = data.summary
    if summary is None:
        return "<p class='note'>The run is not finished: this page shows what is there so far.</p>"
    minutes = summary["seconds"] / 60
    facts = [
        f"{summary['parameters'] / 1e6:.1f} M parameters",
        f"{minutes:.1f} minutes",
        f"{summary['steps'].get('sft', 0)} SFT steps, {summary['steps'].get('rl', 0)} RL steps",
        f"{summary['evaluations']:,} evaluations",
        f"{summary['tokens']:,} tokens sampled",
    ]
    text = f"<p class='dim'>{escape(' · '.join(facts))}</p>"
    kind, device = summary["timing_kind"], summary["device"]
    text += f"<p class='note'>Every time on this page is <b>{escape(kind)}</b> on {escape(device)}.</p>"
    if summary.get("stopped_because"):
        text += f"<p class='note'>RL ended early: {escape(str(summary['stopped_because']))}.</p>"
    return text


def _headline(data: RunData) -> str:
    before, after = data.evaluation("before"), data.evaluation("after")
    if before is None:
        return ""
    rows = []
    for key, label in _FIGURES:
        first, last = before.get(key), (after or {}).get(key)
        change = last - first if first is not None and last is not None else None
        worse = key == "hack_rate"
        css = "" if not change else ("down" if (change < 0) != worse else "up")
        rows.append(
            f"<tr><td>{escape(label)}</td><td class='r'>{_number(key, first)}{_interval(before, key)}</td>"
            f"<td class='r'>{_number(key, last)}{_interval(after, key)}</td>"
            f"<td class='r {css}'>{_change(key, change)}</td></tr>"
        )
    held = f"{before['tasks']} held-out tasks, {before['trajectories']} trajectories, last turn"
    return (
        "<h2>Before and after RL</h2><div class='scroll'><table><tr><th></th><th class='r'>before</th>"
        f"<th class='r'>after</th><th class='r'>change</th></tr>{''.join(rows)}</table></div>"
        f"<p class='dim'>{escape(held)}; families never trained on. In brackets: 95% bootstrap interval over tasks.</p>"
    )


def _number(key: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}×" if key == "speedup" else f"{100 * value:.1f}%"


def _change(key: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:+.2f}×" if key == "speedup" else f"{100 * value:+.1f} points"


def _interval(row: Row | None, key: str) -> str:
    bounds = (row or {}).get(f"{key}_interval")
    return f" <span class='dim'>[{100 * bounds[0]:.0f}, {100 * bounds[1]:.0f}]</span>" if bounds else ""


def _curves(data: RunData) -> str:
    rl, sft = data.stage("rl"), data.stage("sft")
    steps = [row["step"] for row in rl]
    held = sorted((row for row in data.evaluations if row.get("stage") != "base"), key=lambda row: row["step"])
    plots = [
        _figure(
            "Held-out tasks: share correct and so fast (last turn)",
            line_plot([_evaluated(held, key) for key in ("fast_0", "fast_1", "fast_1.2")], y_range=(0.0, 1.0)),
        ),
        _figure(
            "Training tasks: share correct and so fast (last turn)",
            line_plot(
                [Line(k, steps, [r.get(k) for r in rl]) for k in ("fast_0", "fast_1", "fast_1.2")], y_range=(0.0, 1.0)
            ),
        ),
        _figure("Reward of a turn (training tasks)", line_plot(_per_turn(rl, "reward_turns", "turn"))),
        _figure(
            "SFT loss",
            line_plot(
                [
                    Line("training", [r["step"] for r in sft], [r.get("loss") for r in sft]),
                    Line("validation", *_present(sft, "val_loss")),
                ]
            ),
        ),
    ]
    return f"<h2>Learning</h2><div class='plots'>{''.join(plots)}</div>"


def _present(rows: list[Row], key: str) -> tuple[list[float], list[float | None]]:
    kept = [row for row in rows if row.get(key) is not None]
    return [row["step"] for row in kept], [row[key] for row in kept]


def _evaluated(rows: list[Row], key: str) -> Line:
    bounds = [row.get(f"{key}_interval") or [None, None] for row in rows]
    return Line(
        key, [r["step"] for r in rows], [r.get(key) for r in rows], [b[0] for b in bounds], [b[1] for b in bounds]
    )


def _per_turn(rows: list[Row], key: str, name: str) -> list[Line]:
    turns = max((len(row.get(key) or []) for row in rows), default=0)
    xs = [row["step"] for row in rows]

    def value(row: Row, turn: int) -> float | None:
        series = row.get(key) or []
        return series[turn] if turn < len(series) else None

    return [Line(f"{name} {turn + 1}", xs, [value(row, turn) for row in rows]) for turn in range(turns)]


def _turns(data: RunData) -> str:
    rows = []
    for label in ("before", "after"):
        row = data.evaluation(label)
        for turn, metrics in enumerate((row or {}).get("per_turn") or [], 1):
            value = metrics.get("fast_1.2")
            if value is not None:
                rows.append((f"{label}, turn {turn}", value, f"{100 * value:.1f}%"))
        best = (row or {}).get("best") or []
        if best and best[-1].get("fast_1.2") is not None:
            rows.append((f"{label}, best turn", best[-1]["fast_1.2"], f"{100 * best[-1]['fast_1.2']:.1f}%"))
    if not rows:
        return ""
    return f"<h2>What the turns add: fast_1.2 on held-out tasks</h2>{bar_rows(rows, 1.0)}"


def _families(data: RunData) -> str:
    before, after = data.evaluation("before"), data.evaluation("after")
    names = sorted((before or {}).get("families") or {})
    if not names or before is None:
        return ""
    body = []
    for name in names:
        first, last = before["families"][name], ((after or {}).get("families") or {}).get(name, {})
        cells = "".join(
            f"<td class='r'>{_number(key, row.get(key))}</td>"
            for key in ("fast_0", "fast_1.2")
            for row in (first, last)
        )
        body.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    return (
        "<h2>Held-out families</h2><div class='scroll'><table><tr><th></th><th class='r'>fast_0 before</th>"
        "<th class='r'>after</th><th class='r'>fast_1.2 before</th><th class='r'>after</th></tr>"
        f"{''.join(body)}</table></div>"
    )


def _status_and_coverage(data: RunData) -> str:
    rl = data.stage("rl")
    steps = [row["step"] for row in rl]
    seen = {name for row in rl for name in row.get("status") or {}}
    names = [name for name in _STATUS if name in seen] + sorted(seen - set(_STATUS))
    totals = [sum((row.get("status") or {}).values()) or 1 for row in rl]
    series: dict[str, Sequence[float]] = {
        name: [(row.get("status") or {}).get(name, 0) / total for row, total in zip(rl, totals, strict=True)]
        for name in names
    }
    plots = [
        _figure(
            "Verdicts of all turns (training tasks)",
            stacked_plot(steps, series, y_label="share", colors=[_STATUS.get(name, "var(--dim)") for name in names]),
        ),
        _figure(
            "Coverage against speedup of correct answers (dashed: 1.2×)",
            scatter_plot(
                _coverage_groups(data),
                x_label="coverage",
                y_label="speedup",
                x_range=(0.0, 1.02),
                guide_y=1.2,
            ),
        ),
    ]
    return (
        f"<h2>What the policy does</h2><div class='plots'>{''.join(plots)}</div><p class='dim'>Coverage is the share "
        "of GPU time spent in the answer's own kernels. A cloud at low coverage and 1× is lazy optimisation: Triton "
        "for a small part, PyTorch for the rest.</p>"
    )


def _coverage_groups(data: RunData) -> dict[str, Sequence[tuple[float, float]]]:
    """(coverage, speedup) of correct answers: held out before RL, in training, held out after RL."""
    held = [row["step"] for row in data.samples if row.get("split") == "heldout"]
    first, last = min(held, default=0), max(held, default=0)
    groups: dict[str, list[tuple[float, float]]] = {
        "before RL, held out": [], "during RL, sampled training tasks": [], "after RL, held out": []
    }  # fmt: skip
    before, during, after = groups.values()
    for row in data.samples:
        chosen = during if row.get("split") == "train" else before if row["step"] == first else after
        if row.get("split") == "heldout" and row["step"] not in (first, last):
            continue
        for turn in row["turns"]:
            if turn.get("coverage") is not None and turn.get("speedup") is not None:
                chosen.append((turn["coverage"], turn["speedup"]))
    return {name: points for name, points in groups.items() if points}


def _corrections(data: RunData) -> str:
    rl = data.stage("rl")
    if not rl:
        return ""
    steps = [row["step"] for row in rl]

    def line(key: str, name: str) -> Line | None:
        values: list[Any] = [row.get(key) for row in rl]
        return Line(name, steps, values) if any(value is not None for value in values) else None

    wanted = [
        (
            "Rejected",
            [("mismatch/rejected_token_fraction", "tokens, by mismatch"), ("rejected_turns", "turns, by PRS")],
        ),
        (
            "Mismatch between sampler and trainer",
            [("mismatch/k3", "KL estimate k3"), ("mismatch/k1", "KL estimate k1")],
        ),
        ("Gradient norm", [("grad_norm", "norm")]),
        ("Entropy", [("entropy", "per token")]),
        ("Tokens of an answer", [("response_tokens", "mean")]),
        (
            "Seconds of a step",
            [
                ("sample_seconds", "sampling"),
                ("wait_seconds", "of it waiting for grades"),
                ("learn_seconds", "learning"),
            ],
        ),
    ]
    plots = []
    for title, keys in wanted:
        lines = [found for key, name in keys if (found := line(key, name)) is not None]
        if lines:
            plots.append(_figure(title, line_plot(lines)))
    return f"<h2>Corrections and health</h2><div class='plots'>{''.join(plots)}</div>"
