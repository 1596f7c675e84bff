"""Kernels written for the same task and the same draws before and after RL, side by side."""

from __future__ import annotations

from html import escape

from drkernel.report.run_data import Row, RunData

SHOWN = 6


def side_by_side(data: RunData) -> str:
    """The section: tasks where the last turn changed most in reward, both ways up shown honestly."""
    pairs = _pairs(data)
    if not pairs:
        return ""
    ranked = sorted(pairs, key=lambda pair: _reward(pair[1]) - _reward(pair[0]))
    chosen = ranked[::-1][: SHOWN - 2] + [pair for pair in ranked[:2] if _reward(pair[1]) < _reward(pair[0])]
    parts = [
        "<h2>Before and after, side by side</h2><p class='dim'>Held-out tasks, last turn of the same draw: the largest "
        "gains, then the largest losses if there were any.</p>"
    ]
    for before, after in chosen:
        title = f"{before['task_id']} ({before.get('family') or 'task'})"
        prompt = before["turns"][0]["prompt"]
        parts.append(
            f"<h3>{escape(title)}</h3><details><summary>task</summary><pre>{escape(prompt)}</pre></details>"
            f"<div class='pair'>{_answer('before RL', before)}{_answer('after RL', after)}</div>"
        )
    return "".join(parts)


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


def _answer(label: str, row: Row) -> str:
    turn = row["turns"][-1]
    words = [turn["status"].replace("_", " ")]
    if turn.get("speedup") is not None:
        words.append(f"{turn['speedup']:.2f}×")
    if turn.get("coverage") is not None:
        words.append(f"coverage {100 * turn['coverage']:.0f}%")
    if turn.get("findings"):
        words.append(", ".join(turn["findings"]))
    words.append(f"reward {_reward(row):.2f}")
    error = f"<p class='dim'>{escape(str(turn['error']))}</p>" if turn.get("error") else ""
    return (
        f"<div><div class='dim'>{escape(label)}, turn {len(row['turns'])}</div>"
        f"<div class='verdict'>{escape(' · '.join(words))}</div>{error}<pre>{escape(turn['text'])}</pre></div>"
    )
