"""Kernels written for the same task and the same draws before and after RL, side by side."""

from __future__ import annotations

from drkernel.gym.feedback import times
from drkernel.report.run_data import Row, RunData

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


def _answer(row: Row) -> Row:
    """The last turn of a trajectory as the page shows it."""
    turn = row["turns"][-1]
    words = [turn["status"].replace("_", " ")]
    if turn.get("speedup") is not None:
        words.append(f"{times(turn['speedup'])}×")
    if turn.get("coverage") is not None:
        words.append(f"coverage {100 * turn['coverage']:.0f}%")
    if turn.get("findings"):
        words.append(", ".join(turn["findings"]))
    words.append(f"reward {_reward(row):.2f}")
    timed, checked = turn.get("timed_at"), turn.get("checked_at")
    if timed:
        words.append(f"timed at {timed}" + (f", checked at {checked}" if checked != timed else ""))
    return {"turn": len(row["turns"]), "words": words, "error": turn.get("error"), "text": turn["text"]}
