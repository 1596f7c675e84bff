"""Three optimiser steps of verl on a CPU from nothing: a random Qwen3, two turns, the real judge behind its service."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("verl")

from drkernel.episode.episode import EpisodeConfig
from drkernel.rl.data.teacher.families import generate_tasks
from drkernel.rl.model.pocket import PocketConfig
from drkernel.rl.model.policy import Policy, PolicyConfig, TokenizerConfig
from drkernel.rl.model.tokenizer import train_tokenizer

pytestmark = pytest.mark.verl
HERE = Path(__file__).parent
STEPS = 3


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


@pytest.mark.parametrize("shape", ["trajectories", "trees"])
def test_three_steps_with_the_real_judge(tmp_path, judge, shape):
    """Four trajectories of two turns, or trees of four paths that share two first turns."""
    make_model(tmp_path / "model")
    tree = {"width": 4, "branching": 2} if shape == "trees" else None
    recipe = {
        "name": "tiny",
        "runs": str(tmp_path),
        "plugins": ["verl_reward"],
        "policy": {"model": str(tmp_path / "model"), "device": "cpu"},
        "episode": {"turns": 2, "prompts": "compact", "settings": {"checks": 1, "profile": None, "deadline_s": 60},
                    "reward": {"name": "by_text"}},
        "train_tasks": {"count": 8, "seed": 1},
        "heldout_tasks": {"count": 2, "seed": 2},
        "rollout": {"tasks": 2, "samples": 4, "context": 480, "tree": tree,
                    "sampling": {"max_tokens": 24, "rows": 16, "stop_at_fence": False}},
        "rl": {"steps": STEPS, "learner": {"lr": 3e-3, "advantage": {"name": "treepo_loo" if tree else "otb"},
                                           "rejection": {"name": "prs"}, "scale": 24.0}},
        "evaluation": {"every": 100, "tasks": 1, "samples": 1},
        "verl": {"gpus": 1, "workers": 1, "save_every": -1},
    }  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    known = {
        **os.environ,
        "PYTHONPATH": paths,
        "RAY_memory_monitor_refresh_ms": "0",
        "HF_HUB_OFFLINE": "1",
        "RAY_worker_niceness": "0",
    }  # its workers yield to all others by default: on a busy machine they starve
    done = subprocess.run(
        [sys.executable, "-m", "drkernel", "train", str(tmp_path / "recipe.yaml"), "--engine", "verl", "--pool", judge],
        env=known, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    lines = (tmp_path / "tiny" / "verl" / "metrics.jsonl").read_text().splitlines()
    logged = {row["step"]: row["data"] for row in map(json.loads, lines)}
    for step in range(1, STEPS + 1):
        row = logged[step]
        print({key: round(row[key], 6) for key in ("drkernel/reward", "actor/pg_loss", "actor/grad_norm")})
        assert 0 < row["drkernel/reward"] < 1 and row["actor/grad_norm"] > 0
        turns = (8, 16) if tree is None else (12, 12)  # 2 first and 4 second answers of a prompt, each counted once
        assert turns[0] <= row["drkernel/turns"] <= turns[1] and row["drkernel/grader_failed"] == 0
        # after each update the sampler has the new weights: its log-probabilities are the trainer's
        assert row["drkernel/mismatch/max_abs_log_ratio"] < 1e-3
    assert any("reward" in key for key in logged[0])
