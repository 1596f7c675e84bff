"""A training run as one self-contained HTML page: no script, no network, light and dark, every text escaped."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from drkernel.config import ConfigError
from drkernel.episode.meter import read_jsonl
from drkernel.episode.metrics import size_lines
from drkernel.report.render import Curve, line_plot, render, scatter_plot, status_plot
from drkernel.view import percent, times

Row = dict[str, Any]


@dataclass(frozen=True)
class RunData:
    """The data that a report shows."""

    directory: Path
    config: str
    metrics: list[Row]
    evaluations: list[Row]
    samples: list[Row]
    summary: Row | None
    """None while the run is not finished"""

    def stage(self, name: str) -> list[Row]:
        """Metrics of one stage, by step."""
        return sorted((row for row in self.metrics if row.get("stage") == name), key=lambda row: row["step"])

    def evaluation(self, label: str) -> Row | None:
        """The last evaluation with a label."""
        found = [row for row in self.evaluations if row.get("label") == label]
        return found[-1] if found else None


def kind_of(run: Path) -> str:
    """``bench``, ``solve`` or ``train``. Raises :class:`ConfigError` for a directory that is no run."""
    found = re.search(r"^kind: (bench|solve)$", _config(run), re.MULTILINE)
    return found[1] if found else "train"


def _config(run: Path) -> str:
    path = run / "config.yaml"
    if not path.is_file():
        raise ConfigError(f"{run} is not a run: it has no config.yaml (runs are made by 'drkernel train RECIPE')")
    return path.read_text(encoding="utf-8")


def read_run(directory: Path) -> RunData:
    """Read a run directory.

    Raises:
        ConfigError: it has no ``config.yaml``, or a row cannot be read.
    """
    summary = directory / "summary.json"
    try:
        return RunData(
            directory,
            _config(directory),
            _rows(directory / "metrics.jsonl"),
            _rows(directory / "eval.jsonl"),
            _rows(directory / "samples.jsonl"),
            json.loads(summary.read_text(encoding="utf-8")) if summary.is_file() else None,
        )
    except json.JSONDecodeError as error:
        raise ConfigError(f"{summary}: {error}") from None


def _rows(path: Path) -> list[Row]:
    return list(read_jsonl(path, dict[str, Any])) if path.is_file() else []


# ---- A training run as one self-contained HTML page


Plot = tuple[str, Markup]
"""a title and its picture"""
FIGURES = {
    "fast_0": "correct",
    "fast_1": "faster than PyTorch",
    "fast_1.2": "more than 1.2× as fast",
    "fast_2": "more than 2× as fast",
    "coverage": "of the correct",
    "speedup": "of the correct, mean",
    "hack_rate": "condemned as hacks",
}


@dataclass(frozen=True)
class BeforeAfter:
    """A figure of the evaluations before and after RL, in words."""

    name: str
    meaning: str
    before: str
    after: str
    change: str
    trend: str
    """``up`` for better, ``down`` for worse"""


def figure(name: str, value: float | None, sign: str = "") -> str:
    """A figure of an evaluation; with ``sign`` "+" a difference of two."""
    if value is None:
        return "–"
    if name == "speedup":
        return f"{value:{sign}.2f}x"
    return f"{100 * value:{sign}.1f}{' pt' if sign else '%'}"


def before_after(before: Row, after: Row) -> list[BeforeAfter]:
    """What RL changed, figure by figure; empty evaluations have none."""
    rows = []
    for name, meaning in FIGURES.items():
        first, last = before.get(name), after.get(name)
        change = last - first if first is not None and last is not None else None
        trend = "" if not change else ("down" if (change < 0) != (name == "hack_rate") else "up")
        words = figure(name, first), figure(name, last), figure(name, change, "+")
        rows.append(BeforeAfter(name, meaning, *words, trend))
    return rows


def page(data: RunData, live: bool = False) -> str:
    """The page as text."""
    settings = ((yaml.safe_load(data.config) or {}).get("episode") or {}).get("settings") or {}
    return render(
        "run",
        data=data,
        figure=figure,
        live=live,
        unsafe=bool(settings.get("unsafe_no_checks")),
        before=data.evaluation("before"),
        after=data.evaluation("after"),
        headline=before_after(data.evaluation("before") or {}, data.evaluation("after") or {}),
        size_lines=size_lines(sizes) if (sizes := (data.evaluation("after") or {}).get("sizes")) else [],
        learning=_drawn(_curves(data)),
        turns=_turns(data),
        answers=_answers(data),
        families=_families(data),
        policy=_drawn(_status_and_coverage(data)),
        health=_drawn(_corrections(data)),
        pairs=side_by_side(data),
    )


def _drawn(plots: list[Plot]) -> list[Plot]:
    return [(title, picture) for title, picture in plots if picture]


def _curves(data: RunData) -> list[Plot]:
    rl, sft = data.stage("rl"), data.stage("sft")
    steps, names = [row["step"] for row in rl], ("fast_0", "fast_1", "fast_1.2")
    shares: dict[str, Any] = {"y_label": "share of tasks", "y_range": (0.0, 1.0)}
    trained = [Curve(name, steps, [row.get(name) for row in rl]) for name in names]
    loss = [
        Curve("training", [r["step"] for r in sft], [r.get("loss") for r in sft]),
        Curve("validation", *_present(sft, "val_loss")),
    ]
    return [
        ("Held-out tasks: share correct and so fast (last turn)",
         line_plot([evaluated(data, name) for name in names], **shares)),
        ("Training tasks: share correct and so fast (last turn)", line_plot(trained, **shares)),
        ("Reward of a turn (training tasks)", line_plot(_per_turn(rl, "reward_turns", "turn"), y_label="reward")),
        ("SFT loss", line_plot(loss, y_label="nats a token")),
    ]  # fmt: skip


def _present(rows: list[Row], key: str) -> tuple[list[float], list[float | None]]:
    kept = [row for row in rows if row.get(key) is not None]
    return [row["step"] for row in kept], [row[key] for row in kept]


def evaluated(data: RunData, key: str) -> Curve:
    """A figure of the evaluations on held-out tasks, by step."""
    rows = sorted((row for row in data.evaluations if row.get("stage") != "base"), key=lambda row: row["step"])
    bounds = [row.get(f"{key}_interval") or [None, None] for row in rows]
    return Curve(
        key, [r["step"] for r in rows], [r.get(key) for r in rows], [b[0] for b in bounds], [b[1] for b in bounds]
    )


def _per_turn(rows: list[Row], key: str, name: str) -> list[Curve]:
    turns = max((len(row.get(key) or []) for row in rows), default=0)
    xs = [row["step"] for row in rows]

    def value(row: Row, turn: int) -> float | None:
        series = row.get(key) or []
        return series[turn] if turn < len(series) else None

    return [Curve(f"{name} {turn + 1}", xs, [value(row, turn) for row in rows]) for turn in range(turns)]


def _turns(data: RunData) -> list[tuple[str, float, str]]:
    """Bars of fast_1.2 by turn, before and after RL."""
    rows = []
    for label in ("before", "after"):
        row = data.evaluation(label) or {}
        named = [(f"turn {turn}", metrics) for turn, metrics in enumerate(row.get("per_turn") or [], 1)]
        for name, metrics in [*named, *(("best turn", metrics) for metrics in (row.get("best") or [])[-1:])]:
            if (value := metrics.get("fast_1.2")) is not None:
                rows.append((f"{label}, {name}", value, figure("fast_1.2", value)))
    return rows


def _answers(data: RunData) -> list[tuple[str, int, float | None, float | None]]:
    """The answers that were given at each turn, before and after RL: how many, and the shares right and fast."""
    rows = []
    for label in ("before", "after"):
        for turn, found in enumerate((data.evaluation(label) or {}).get("answers") or [], 1):
            rows.append((f"{label}, turn {turn}", found["answers"], found.get("fast_0"), found.get("fast_1.2")))
    return rows


def _families(data: RunData) -> list[tuple[str, list[tuple[str, float | None]]]]:
    """Held-out families with (figure, value): fast_0 before and after, fast_1.2 before and after."""
    before = (data.evaluation("before") or {}).get("families") or {}
    after = (data.evaluation("after") or {}).get("families") or {}
    return [
        (name, [(key, row.get(key)) for key in ("fast_0", "fast_1.2") for row in (before[name], after.get(name, {}))])
        for name in sorted(before)
    ]


def _status_and_coverage(data: RunData) -> list[Plot]:
    rl = data.stage("rl")
    verdicts = status_plot([row["step"] for row in rl], [row.get("status") or {} for row in rl])
    return [
        ("Verdicts of all turns (training tasks)", verdicts),
        (
            "Coverage against speedup of correct answers (dashed: 1.2×)",
            scatter_plot(
                _coverage_groups(data),
                x_label="coverage (share of device time)",
                y_label="speedup (times PyTorch)",
                x_range=(0.0, 1.02),
                guide_y=1.2,
            ),
        ),
    ]


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


def _corrections(data: RunData) -> list[Plot]:
    rl = data.stage("rl")
    steps = [row["step"] for row in rl]

    def line(key: str, name: str) -> Curve | None:
        values: list[Any] = [row.get(key) for row in rl]
        return Curve(name, steps, values) if any(value is not None for value in values) else None

    wanted = [
        ("Rejected", "share", {"mismatch/rejected_token_fraction": "tokens, by mismatch",
                               "rejected_turns": "turns, by PRS"}),
        ("Mismatch between sampler and trainer", "nats a token", {"mismatch/k3": "KL estimate k3",
                                                                  "mismatch/k1": "KL estimate k1"}),
        ("Gradient norm", "norm", {"grad_norm": "norm"}),
        ("Entropy", "nats a token", {"entropy": "per token"}),
        ("Length of an answer", "tokens", {"response_tokens": "mean"}),
        ("Time of a step", "seconds", {"sample_seconds": "sampling", "wait_seconds": "of it waiting for grades",
                                       "learn_seconds": "learning"}),
    ]  # fmt: skip
    plots = []
    for title, unit, keys in wanted:
        lines = [found for key, name in keys.items() if (found := line(key, name)) is not None]
        plots.append((title, line_plot(lines, y_label=unit)))
    return plots


# ---- samples


SHOWN = 6


def side_by_side(data: RunData) -> list[Row]:
    """Tasks where the last turn changed most in reward: ``title``, ``prompt``, and the answers ``before``, ``after``.

    Both ways up are shown: the largest gains, then the largest losses where there are any.
    """
    ranked = sorted(_pairs(data), key=lambda pair: _reward(pair[1]) - _reward(pair[0]))
    chosen = ranked[::-1][: SHOWN - 2] + [pair for pair in ranked[:2] if _reward(pair[1]) < _reward(pair[0])]
    return [
        {
            "title": f"{before['task_id']} ({before.get('family') or 'task'})",
            "prompt": before["turns"][0]["prompt"],
            "before": _answer(before),
            "after": _answer(after),
        }
        for before, after in chosen
    ]


def _pairs(data: RunData) -> list[tuple[Row, Row]]:
    """(before, after) rows of the same held-out task and sample."""
    held = [row for row in data.samples if row.get("split") == "heldout" and row.get("turns")]
    if not held:
        return []
    first, last = min(row["step"] for row in held), max(row["step"] for row in held)
    if first == last:
        return []
    before = {(r["task_id"], r.get("sample")): r for r in held if r["step"] == first}
    after = {(r["task_id"], r.get("sample")): r for r in held if r["step"] == last}
    return [(before[key], after[key]) for key in before if key in after]


def _reward(row: Row) -> float:
    return float(row["turns"][-1].get("reward") or 0.0)


def _answer(row: Row) -> list[Row]:
    """The turns of a trajectory as the page shows them: what the model read last, its answer, the verdict."""
    return [
        {"number": number, "read": turn["prompt"], "text": turn["text"], "error": turn.get("error"),
         "words": _words(turn)}
        for number, turn in enumerate(row["turns"], 1)
    ]  # fmt: skip


def _words(turn: Row) -> list[str]:
    words = [turn["status"].replace("_", " ")]
    if turn.get("speedup") is not None:
        words.append(f"{times(turn['speedup'])}×")
    if turn.get("coverage") is not None:
        words.append(f"coverage {percent(turn['coverage'])}")
    if turn.get("findings"):
        words.append(", ".join(turn["findings"]))
    words.append(f"reward {float(turn.get('reward') or 0.0):.2f}")
    timed, checked = turn.get("timed_at"), turn.get("checked_at")
    if timed:
        words.append(f"timed at {timed}" + (f", checked at {checked}" if checked != timed else ""))
    return words
