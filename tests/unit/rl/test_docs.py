"""The examples of docs/rl.md run as they stand, in order, on a small batch."""

import re

import torch

from drkernel.rl.run import registry
from places import DOCS

torch.set_num_threads(1)
PAGE = DOCS / "rl.md"


def names():
    """What the page's examples take for granted."""
    g = torch.Generator().manual_seed(0)
    trajectories, turns, tokens, width, vocabulary = 8, 3, 5, 16, 50
    rows = trajectories * turns
    trajectory, turn = torch.arange(trajectories).repeat_interleave(turns), torch.arange(turns).repeat(trajectories)
    rewards = torch.rand(rows, generator=g)
    train = -torch.rand(rows, tokens, generator=g)
    drawn = torch.randint(vocabulary, (rows, tokens), generator=g)
    return {
        "rewards_NT": rewards.reshape(trajectories, turns),
        "valid_NT": torch.ones(trajectories, turns),
        "rewards_B": rewards,
        "returns_B": rewards.reshape(-1, turns).flip(1).cumsum(1).flip(1).reshape(-1),
        "totals_B": rewards.reshape(-1, turns).sum(1).repeat_interleave(turns),
        "task_B": trajectory // 4,
        "trajectory_B": trajectory,
        "turn_B": turn,
        "turns": turns,
        "group_B": (trajectory // 4) * turns + turn,
        "valid_B": torch.ones(rows, dtype=torch.bool),
        "correct_B": torch.rand(rows, generator=g) < 0.5,
        "coverage_B": torch.rand(rows, generator=g),
        "mask_BT": torch.ones(rows, tokens),
        "train_BT": train,
        "rollout_BT": train + 1e-3 * torch.randn(rows, tokens, generator=g),
        "logprobs_BT": train.clone().requires_grad_(),
        "old_BT": train,
        "hidden": torch.randn(rows, tokens, width, generator=g),
        "head_weight": torch.randn(vocabulary, width, generator=g),
        "logits": torch.randn(rows, tokens, vocabulary, generator=g),
        "tokens": drawn,
        "step": 3,
        "rows": rows,
        "budget": tokens,
        "mean_length": 100.0,
        "base_rate": 1e-6,
        "temperature": 1.0,
    }


def test_the_pages_examples_run(monkeypatch):
    monkeypatch.setattr(registry.advantage, "_entries", dict(registry.advantage._entries))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) >= 9
    scope = names()
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), scope)
        if "A_B" in scope:
            assert torch.isfinite(scope["A_B"]).all()
    assert torch.isfinite(scope["logprobs_BT"].grad).all() and scope["logprobs_BT"].grad.abs().sum() > 0
    assert scope["A_BT"].shape == scope["mask_BT"].shape
    assert "mine" in registry.advantage.names()


def test_the_page_names_every_method():
    text = PAGE.read_text()
    for kind in (registry.advantage, registry.loss, registry.mismatch, registry.rejection, registry.schedule):
        for name in kind.names():
            if not kind.get(name).__module__.startswith("drkernel."):
                continue  # of a plug-in that other tests loaded
            assert f"`{name}`" in text or name == "none", f"{kind.kind} {name} is missing in docs/rl.md"
