import json
import os

import pytest
import torch

from drkernel.base.files import write_atomic
from drkernel.config import ConfigError
from drkernel.rl.run.optimizers import make_optimizer
from drkernel.rl.run.sitting import Checkpoints, RunFiles
from tiny import tiny_policy


def take_a_step(policy, optimizer):
    for parameter in policy.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def test_a_checkpoint_brings_back_weights_optimiser_and_generator(tmp_path):
    policy = tiny_policy()
    optimizer = make_optimizer(policy, 1e-2, 0.1)
    take_a_step(policy, optimizer)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("rl-1", policy, optimizer, {"step": 1})
    expected = torch.rand(3)
    take_a_step(policy, optimizer)
    other = tiny_policy(seed=5)
    fresh = make_optimizer(other, 1e-2, 0.1)
    path, state = checkpoints.latest()
    Checkpoints.load(path, other, fresh)
    assert state == {"step": 1}
    assert torch.equal(torch.rand(3), expected)
    take_a_step(other, fresh)
    assert all(torch.equal(a, b) for a, b in zip(policy.model.parameters(), other.model.parameters(), strict=True))


def test_old_ones_go_and_exports_stay(tmp_path):
    policy = tiny_policy()
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.export("best", policy)
    for step in range(4):
        checkpoints.save(f"rl-{step}", policy, None, {"step": step})
    assert {path.name for path in tmp_path.iterdir()} == {"latest", "best", "rl-2", "rl-3"}
    assert checkpoints.latest()[1] == {"step": 3}


@pytest.mark.parametrize("moment", ["while writing", "before the rename", "before the pointer"])
def test_a_kill_at_any_moment_leaves_the_last_whole_checkpoint(tmp_path, monkeypatch, moment):
    policy = tiny_policy()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("rl-1", policy, None, {"step": 1})

    class Killed(BaseException):
        pass

    def kill(*args, **kwargs):
        raise Killed

    target = {
        "while writing": ("torch.save", kill),
        "before the rename": ("drkernel.rl.run.sitting.publish_directory", kill),
        "before the pointer": ("drkernel.rl.run.sitting.write_atomic", kill),
    }[moment]
    monkeypatch.setattr("shutil.rmtree", lambda *args, **kwargs: None)  # a killed process cleans nothing up
    with monkeypatch.context() as patch:
        patch.setattr(*target)
        with pytest.raises(Killed):
            checkpoints.save("rl-2", policy, None, {"step": 2})
    monkeypatch.undo()
    again = Checkpoints(tmp_path)
    again.sweep()
    path, state = again.latest()
    assert state == {"step": 1}
    Checkpoints.load(path, policy, None)
    again.save("rl-2", policy, None, {"step": 2})
    assert again.latest()[1] == {"step": 2}
    assert not list(tmp_path.glob(".*"))


def test_a_damaged_checkpoint_is_named_with_the_way_out(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    path = checkpoints.save("rl-1", tiny_policy(), None, {})
    (path / "state.json").write_text("{")
    with pytest.raises(ConfigError, match="write the name of an older one"):
        checkpoints.latest()


def test_exports_load_with_transformers(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    policy = tiny_policy()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.export("final", policy)
    path = checkpoints.export("final", policy)  # a second time replaces it
    model = AutoModelForCausalLM.from_pretrained(path)
    ids = torch.tensor([AutoTokenizer.from_pretrained(path)("name = beta").input_ids])
    assert torch.allclose(model(ids).logits, policy.model(ids).logits, atol=1e-6)


def test_files_are_cut_back_to_the_checkpoint(tmp_path):
    files = RunFiles(tmp_path)
    files.append("metrics.jsonl", {"step": 1})
    sizes = files.sizes()
    files.append("metrics.jsonl", {"step": 2})
    files.close()
    files = RunFiles(tmp_path, sizes)
    files.append("metrics.jsonl", {"step": 3, "a": [1.0, float("inf")], "b": (float("nan"), "x")})
    files.close()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows == [{"step": 1}, {"step": 3, "a": [1.0, None], "b": [None, "x"]}]
    os.truncate(tmp_path / "metrics.jsonl", 3)
    with pytest.raises(ConfigError, match="shorter"):
        RunFiles(tmp_path, sizes)


def test_atomic_text_replaces_whole(tmp_path):
    path = tmp_path / "x.json"
    write_atomic(path, "old")
    write_atomic(path, "new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]
