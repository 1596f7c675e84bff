"""The run report: complete, escaped, self-contained; honest about unfinished and damaged runs."""

import json
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from browser import rest
from drkernel.config import ConfigError
from drkernel.report.bench import write_report
from drkernel.report.run import page, read_run

VOID = {"meta"}


class Balance(HTMLParser):
    def __init__(self):
        super().__init__()
        self.stack, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.stack and self.stack.pop() == tag, tag


def evaluation(label, step, fast):
    metrics = {"fast_0": 0.9, "fast_1": fast, "fast_1.2": fast, "fast_1.5": fast, "fast_2": fast / 2, "coverage": 0.7,
               "speedup": 1.4, "hack_rate": 0.0}  # fmt: skip
    return {
        "stage": "rl" if step else "sft", "step": step, "label": label, **metrics, "reward": 1.0,
        "fast_0_interval": [0.8, 1.0], "fast_1_interval": [fast - 0.1, fast + 0.1],
        "fast_1.2_interval": [fast - 0.1, fast + 0.1], "per_turn": [metrics, metrics], "best": [metrics, metrics],
        "answers": [{"answers": 10, **metrics}, {"answers": 7, **metrics, "fast_1.2": fast / 4}],
        "families": {"norm_residual": metrics}, "status": {"correct": 9, "incorrect": 1}, "trajectories": 10,
        "tasks": 10, "infra_errors": 0, "seconds": 3.0,
        "sizes": {"own": 7, "checked": 2, "tasks": 10, "tasks_apart": 4, "untimed": {"too much data": 2}},
    }  # fmt: skip


def sample(step, text, reward, split="heldout"):
    turn = {"index": 0, "prompt": "Write <Model>", "text": text, "status": "correct", "reward": reward, "parts": {},
            "speedup": 1.3, "coverage": 0.8, "findings": [], "error": None, "tokens": 50, "stop": "end"}  # fmt: skip
    return {"stage": "rl", "step": step, "split": split, "task_id": "gen/x", "family": "norm", "group": 0, "sample": 0,
            "turns": [turn]}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    rl = [
        {"stage": "rl", "step": k, "reward": 0.5, "reward_turns": [0.4, None if k == 2 else 0.6], "fast_0": 0.8,
         "fast_1": 0.2, "fast_1.2": 0.1 * k, "status": {"correct": 5, "hack": 1} if k != 3 else {}, "grad_norm": 0.5,
         "entropy": 0.3, "mismatch/k3": 1e-4, "rejected_turns": 0.0, "response_tokens": 80.0, "sample_seconds": 1.0,
         "wait_seconds": 0.2, "learn_seconds": 1.0}
        for k in range(1, 6)
    ]  # fmt: skip
    sft = [
        {"stage": "sft", "step": k, "loss": 1.0 / k, **({"val_loss": 1.1 / k} if k % 2 else {})} for k in range(1, 5)
    ]
    files = {
        "metrics.jsonl": sft + rl,
        "eval.jsonl": [evaluation("before", 0, 0.2), evaluation("during", 3, 0.4), evaluation("after", 5, 0.6)],
        "samples.jsonl": [
            sample(0, "<script>alert(1)</script>", 0.5),
            sample(5, "tl.store(a & b)", 1.5),
            sample(2, "x", 1.0, "train"),
        ],
    }  # fmt: skip
    for name, rows in files.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "config.yaml").write_text("name: test\n")
    summary = {"schema_version": 1, "name": "test", "status": "done", "timing_kind": "modelled", "device": "sim:h200",
               "seconds": 600.0, "evaluations": 1234, "tokens": 99999, "steps": {"sft": 4, "rl": 5},
               "parameters": 3_000_000, "stopped_because": None, "unsafe_no_checks": False}  # fmt: skip
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    return tmp_path


def test_the_page_is_balanced_escaped_and_self_contained(run):
    text = rest(write_report(run).read_text())
    parser = Balance()
    parser.feed(text)
    assert parser.stack == [] and parser.links == []
    assert "<script" not in text and "&lt;script&gt;alert(1)" in text
    assert "nan" not in text.lower().replace("finance", "") and "None" not in text
    for part in (
        "modelled",
        "20.0%",
        "60.0%",
        "+40.0 pt",
        "norm_residual",
        "before RL",
        "after RL",
        "1,234",
        "7 of 9 times are of the tasks' own sizes",
        "2 answers: too much data",
        '<td>after, turn 2</td><td class="r">7</td><td class="r">90.0%</td><td class="r">15.0%</td>',
    ):
        assert part in text.replace("&#39;", "'"), part


def test_research_runs_without_checks_are_marked_loudly(run):
    alarm = '<p class="alarm">THE JUDGE\'S CHECKS WERE SWITCHED OFF'
    assert alarm not in page(read_run(run))
    (run / "config.yaml").write_text("name: test\nepisode: {settings: {unsafe_no_checks: true}}\n")
    assert alarm in page(read_run(run))
    (run / "summary.json").unlink()
    assert alarm in page(read_run(run))  # and while it is still going


def test_a_run_that_is_still_going_has_a_page(run):
    for name in ("summary.json", "eval.jsonl", "samples.jsonl"):
        (run / name).unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "rl", "st')
    text = write_report(run).read_text()
    assert "not finished" in text and "Held-out tasks: share" not in text and "refresh" not in text
    assert 'http-equiv="refresh"' in write_report(run, live=True).read_text()


def test_what_is_no_run_or_is_damaged_is_named(run, tmp_path_factory):
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        read_run(tmp_path_factory.mktemp("empty"))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([lines[0], "{broken", *lines[1:]]))
    with pytest.raises(ConfigError, match="line 2"):
        read_run(run)


@pytest.mark.slow
def test_a_browser_draws_the_page(run, tmp_path):
    browser = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )
    if browser is None:
        pytest.skip("no Chromium on this machine")
    page_path = write_report(run)
    picture = tmp_path / "page.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=400,900", f"--screenshot={picture}"]
    subprocess.run([browser, *flags, page_path.as_uri()], check=True, capture_output=True, timeout=120)
    assert picture.stat().st_size > 10_000
