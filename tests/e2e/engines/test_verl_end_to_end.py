"""Optimiser steps of verl on a CPU from nothing: a random Qwen3, two turns, the real judge behind its service; and what
becomes of a run that is interrupted or killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from places import KIT, ROOT

pytest.importorskip("verl")

from drkernel.episode.episode import EpisodeConfig
from drkernel.rl.data.problem import generate_tasks
from drkernel.rl.model.policy import PocketConfig, Policy, PolicyConfig, TokenizerConfig
from drkernel.rl.model.tokenizer import train_tokenizer
from waiting import until

pytestmark = pytest.mark.verl
STEPS, INTERRUPTED_STEPS = 3, 5
REWARDS_APART = 0.1
"""standard deviation below which the refilled run takes a prompt to teach nothing"""
WIDE = {"name": "mrs", "options": {"bounds": [0.5, 2.0]}}
"""steps of this size move the policy further than the usual bounds let older weights sample"""
MARK = "DRKERNEL_TEST_RUN"


def make_model(directory):
    terms = EpisodeConfig(prompts="compact")
    prompts = terms.texts()
    tasks = generate_tasks("train", 40, 1)
    texts = [prompts.opening(task, terms.settings.for_task(task))[-1].content for task in tasks]
    tokenizer = train_tokenizer(texts, 600, "line")
    pocket = PocketConfig(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, mlp=128, context=480)
    config = PolicyConfig(pocket=pocket, tokenizer=TokenizerConfig(vocab_size=600), device="cpu")
    Policy.from_scratch(config, tokenizer, 0).save(directory)


@pytest.fixture
def judge(tmp_path):
    command = [sys.executable, "-m", "drkernel", "serve", "--port", "0", "--store", str(tmp_path / "store.sqlite")]
    process = subprocess.Popen([*command, "--slots", "2"], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(60)


def write_recipe(directory, **changes):
    """A recipe of three steps about a random model."""
    make_model(directory / "model")
    recipe = {
        "name": "tiny",
        "runs": str(directory),
        "plugins": ["verl_reward"],
        "policy": {"model": str(directory / "model"), "device": "cpu"},
        "episode": {"turns": 2, "prompts": "compact", "settings": {"checks": 1, "profile": None, "deadline_s": 60},
                    "reward": {"name": "by_text"}},
        "train_tasks": {"count": 8, "seed": 1},
        "heldout_tasks": {"count": 2, "seed": 2},
        "rollout": {"tasks": 2, "samples": 4, "context": 480,
                    "sampling": {"max_tokens": 24, "rows": 16, "stop_at_fence": False}},
        "rl": {"steps": STEPS, "learner": {"lr": 3e-3, "advantage": {"name": "otb"}, "rejection": {"name": "prs"},
                                           "mismatch": WIDE, "scale": 24.0, "kl_coefficient": 0.01}},
        "evaluation": {"every": 100, "tasks": 1, "samples": 1},
        "verl": {"gpus": 1, "workers": 1, "save_every": -1},
    }  # fmt: skip
    for key, value in changes.items():
        *path, last = key.split("__")
        section = recipe
        for name in path:
            section = section[name]
        section[last] = value
    (directory / "recipe.yaml").write_text(yaml.safe_dump(recipe))


def begin(directory, judge):
    """Start the command in its own session, its output in a file."""
    paths = os.pathsep.join([str(KIT), str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    known = {
        **os.environ,
        MARK: str(directory),
        "PYTHONPATH": paths,
        "RAY_memory_monitor_refresh_ms": "0",
        "HF_HUB_OFFLINE": "1",
        "RAY_worker_niceness": "0",
    }  # its workers yield to all others by default: on a busy machine they starve
    command = [sys.executable, "-m", "drkernel", "train", str(directory / "recipe.yaml"), "--engine", "verl"]
    with open(directory / "output", "ab") as file:
        return subprocess.Popen([*command, "--pool", judge], env=known, stdout=file, stderr=file)


def logged(directory):
    """What verl has logged since its last start, by step."""
    path = directory / "tiny" / "verl" / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return {row["step"]: row["data"] for row in rows}


def trained(directory):
    """The steps that have trained since the last start."""
    return [step for step, row in logged(directory).items() if "actor/grad_norm" in row]


@pytest.mark.parametrize("shape", ["trajectories", "refilled", "ahead"])
def test_three_steps_with_the_real_judge(tmp_path, judge, shape):
    """Four trajectories of two turns; or other prompts in place of those with rewards that are nearly alike; or each
    batch sampled while the one before it trains."""
    refill, staleness = shape == "refilled", int(shape == "ahead")
    changes = {"plugins": ["verl_reward"]}
    if refill:
        alike = {"name": "uninformative", "tolerance": REWARDS_APART}
        changes |= {"rollout__refill": 2, "rl__learner__rejection": alike, "rollout__sampling__max_tokens": 100}
    changes["rollout__staleness"] = staleness
    write_recipe(tmp_path, **changes, rl__learner__advantage={"name": "otb"})
    assert begin(tmp_path, judge).wait(1500) == 0, (tmp_path / "output").read_text()[-4000:]
    rows = logged(tmp_path)
    for step in range(1, STEPS + 1):
        row = rows[step]
        print({key: round(row[key], 6) for key in ("drkernel/reward", "actor/pg_loss", "actor/grad_norm")})
        assert refill or (row["actor/kl_loss"] > 1e-6) == (step > 1)
        assert 0 < row["drkernel/reward"] < 1 and (row["actor/grad_norm"] > 0 or refill)
        assert 8 <= row["drkernel/turns"] <= 16 and row["drkernel/grader_failed"] == 0
        # after each update the sampler has the new weights: its log-probabilities are the trainer's; or those of the
        # weights before the last update
        assert row["drkernel/lag"] == (staleness if step > 1 else 0)
        assert (row["drkernel/mismatch/max_abs_log_ratio"] < 1e-3) == (row["drkernel/lag"] == 0)
        if refill:
            gone = row["drkernel/prompts"] - row["drkernel/prompts_kept"]
            reasons = [row.get(f"drkernel/dropped/{reason}", 0) for reason in ("equal", "overlong", "few")]
            assert gone == sum(reasons) and row["drkernel/refills"] <= 2
            assert row["drkernel/prompts_kept"] == 2 or row["drkernel/refills"] == 2
    assert not refill or any(rows[step]["drkernel/refills"] for step in range(1, STEPS + 1))
    assert any("reward" in key for key in rows[0])


@pytest.mark.parametrize("staleness", [0, 1])
def test_an_interrupted_and_a_killed_run_leave_nothing_behind_and_continue(tmp_path, judge, staleness):
    """The reference of the KL penalty stays the policy that RL began with."""
    write_recipe(tmp_path, verl__save_every=1, rl__steps=INTERRUPTED_STEPS, rollout__staleness=staleness)
    saved = tmp_path / "tiny" / "verl" / "checkpoints" / "latest_checkpointed_iteration.txt"

    def runs_to(step, process):
        """Wait until a step's checkpoint is complete and its line is in the log."""
        until(lambda: (saved.exists() and step in trained(tmp_path)) or process.poll() is not None, 900, every=0.5)
        assert process.poll() is None, (tmp_path / "output").read_text()[-4000:]

    process = begin(tmp_path, judge)
    runs_to(1, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130
    until(lambda: not alive(tmp_path), 120)
    done = int(saved.read_text())
    assert f"the same command continues after step {done}" in (tmp_path / "output").read_text()
    process = begin(tmp_path, judge)
    runs_to(done + 1, process)
    process.kill()
    process.wait()
    until(lambda: not alive(tmp_path), 120)
    assert trained(tmp_path)[0] == done + 1
    assert logged(tmp_path)[done + 1]["actor/kl_loss"] > 1e-6
    assert logged(tmp_path)[done + 1]["drkernel/lag"] == staleness
    done = int(saved.read_text())
    assert begin(tmp_path, judge).wait(1500) == 0, (tmp_path / "output").read_text()[-4000:]
    assert int(saved.read_text()) == INTERRUPTED_STEPS and not alive(tmp_path)
    assert trained(tmp_path) == list(range(done + 1, INTERRUPTED_STEPS + 1))


def alive(directory):
    """The processes that were started for a run of this directory."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            known = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if f"{MARK}={directory}".encode() in known.split(b"\0"):
            found.append(int(name))
    return found
