"""The page over seeds, from two small run directories: what RL chose is counted right."""

import json
import subprocess
import sys

from places import BENCHMARKS

SCRIPT = BENCHMARKS / "quickstart_seeds.py"
LAUNCH = "kernel[(triton.cdiv(n, {b}),)](x, o, n, B={b}, num_warps={w})"
ROW = "kernel[(x.shape[0],)](x, o, n, B=triton.next_power_of_2(n), num_warps={w})"


def turn(text, speedup=None, coverage=None):
    status = "incorrect" if speedup is None else "correct"
    return {"text": text, "status": status, "speedup": speedup, "coverage": coverage}


def write_run(directory, block, speedup):
    directory.mkdir()
    figures = {"fast_0": 0.5, "fast_1": 0.5, "fast_1.2": 0.5, "fast_1.5": 0, "fast_2": 0, "coverage": 1, "hack_rate": 0}
    summary = {
        "before": figures,
        "after": {**figures, "fast_1.2": 0.75},
        "timing_kind": "modelled",
        "device": "sim:h200",
    }
    summary |= {"steps": {"rl": 1}, "evaluations": 4, "tokens": 9, "seconds": 60}
    (directory / "summary.json").write_text(json.dumps(summary))
    (directory / "metrics.jsonl").write_text(json.dumps({"stage": "rl", "step": 1, "reward": 1.0}) + "\n")
    rows = []
    for step, label in enumerate(("before", "after")):
        one = {"label": label, "step": step, "fast_1.2": 0.5, "fast_1.2_interval": [0.4, 0.6], "tasks": 2}
        one |= {
            "best": [figures],
            "families": {"f": figures},
            "per_turn": [figures],
            "answers": [figures],
            "trajectories": 2,
        }
        rows.append(json.dumps(one))
    (directory / "eval.jsonl").write_text("\n".join(rows))
    turns = {
        0: [turn(LAUNCH.format(b=64, w=16), 0.4, 1.0), turn("tl.dot( " + LAUNCH.format(b=32, w=8))],
        1: [turn(LAUNCH.format(b=block, w=4), speedup, 1.0), turn(ROW.format(w=2), 1.3, 0.4)],
    }
    samples = [{"split": "heldout", "step": step, "turns": found} for step, found in turns.items()]
    samples.append({"split": "train", "step": 1, "turns": [turn(LAUNCH.format(b=128, w=1), 9.0, 1.0)]})
    (directory / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in samples))


def test_speedups_and_launches_are_counted_before_and_after(tmp_path):
    write_run(tmp_path / "a", 512, 2.5)
    write_run(tmp_path / "b", 1024, 1.0)
    command = [sys.executable, str(SCRIPT), str(tmp_path / "a"), str(tmp_path / "b"), "--results", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    table = (tmp_path / "quickstart.csv").read_text()
    for row in (
        ',"wrong, or no speedup",50.0%,0.0%\n',
        ",0x to 0.5x,50.0%,0.0%\n",
        ",1x to 1.2x,0.0%,25.0%\n",
        ",1.2x to 1.5x,0.0%,50.0%\n",
        ",2x to 3x,0.0%,25.0%\n",
        ",less,0.0%,50.0%\n",
        ",64,100.0%,0.0%\n",
        ",32,100.0%,0.0%\n",
        ",512,0.0%,50.0%\n",
        ",1024,0.0%,50.0%\n",
        ",2,0.0%,100.0%\n",
    ):
        assert row in table, row
    assert "128" not in table and (tmp_path / "quickstart_choices.png").stat().st_size > 1000
    page = (tmp_path / "quickstart.md").read_text()
    assert "| 0 of 1, 0% | 1 of 1, 100% | 50.0% |" in page  # of the second run: a slow answer before a fast one
