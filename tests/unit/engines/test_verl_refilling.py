"""Refilling through verl's own buffer of finished trajectories, over a queue in memory. Needs verl: ``make
test-verl``."""

import random
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("verl")

from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.v1 import replay_buffer
from verl.utils.import_utils import load_extern_type

from drkernel.config import load_config
from drkernel.engines.verl import trainer as trainer_module
from drkernel.engines.verl.translate import translate
from drkernel.engines.verl.turns import pack, teach, unpack
from drkernel.rl.run.learner import LearnerConfig
from drkernel.rl.run.recipe import Recipe
from drkernel.rl.run.rows import TurnFacts, TurnRows

pytestmark = pytest.mark.verl
SAMPLES, TASKS = 4, 6
BASE = {
    "policy": {"model": "somewhere", "device": "cpu"},
    "rollout": {"tasks": TASKS, "samples": SAMPLES, "refill": 5, "context": 480,
                "sampling": {"max_tokens": 160, "stop_at_fence": False}},
    "rl": {"steps": 3, "learner": {"mismatch": [], "rejection": ["uninformative"], "scale": 3.0}},
}  # fmt: skip


class Prompts:
    """Prompts of a loader and their finished trajectories of two turns, as verl's queue has them."""

    def __init__(self, teaches):
        self.teaches, self.submitted, self.tags, self.columns = list(teaches), 0, {}, {}

    def submit(self, count):
        """Play the next prompts: all answers of those that teach nothing earn the same."""
        for number in range(self.submitted, self.submitted + count):
            self.tags[f"p{number}"] = {"is_prompt": True, "status": "finished", "global_steps": 1}
            for sample in range(SAMPLES):
                reward = 1.0 + number + (sample if self.teaches[number] else 0)
                turns = [TurnFacts(4 * k, 4 * k + 3, True, reward=reward * k, correct=True, turn=k) for k in (0, 1)]
                self.tags[f"p{number}_{sample}_0"] = {"status": "success"}
                self.columns[f"p{number}_{sample}_0"] = pack(turns)
        self.submitted += count

    def kv_list(self):
        return {"train": dict(self.tags)}

    def kv_clear(self, partition_id, keys):
        for key in keys:
            del self.tags[key]

    def kv_batch_get(self, keys, partition_id, select_fields):
        assert select_fields == ["drkernel_turns"] and all(key in self.tags for key in keys)
        column = torch.nested.as_nested_tensor([self.columns[key] for key in keys], layout=torch.jagged)
        return TensorDict({"drkernel_turns": column}, batch_size=len(keys))


def buffer_of(recipe, prompts):
    """The buffer that verl builds from our configuration."""
    written = OmegaConf.create(translate(recipe))
    OmegaConf.resolve(written)
    custom = written.trainer.v1.sampler.custom_sampler
    assert written.data.gen_batch_size == 1
    return load_extern_type(custom.path, custom.name)(
        trainer_mode="sync", trainer_config=OmegaConf.create({}), max_off_policy_threshold=8,
        max_off_policy_strategy="drop", sampler_kwargs=written.trainer.v1.sampler.sampler_kwargs,
        refill_fn=prompts.submit,
    )  # fmt: skip


def expected(teaches, rounds):
    """The prompts that a step learns from, those it draws, and the rounds it needs."""
    drawn, kept, used = TASKS, [n for n in range(TASKS) if teaches[n]], 0
    while len(kept) < TASKS and used < rounds:
        missing = TASKS - len(kept)
        kept += [n for n in range(drawn, drawn + missing) if teaches[n]]
        drawn, used = drawn + missing, used + 1
    return kept, drawn, used


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 1.0])
@pytest.mark.parametrize("rounds", [1, 5])
def test_a_step_learns_from_the_prompts_that_our_own_trainer_would_keep(monkeypatch, share, rounds):
    draw = random.Random(f"{share}-{rounds}")
    teaches = [draw.random() < share for _ in range(TASKS * 7)]
    prompts = Prompts(teaches)
    monkeypatch.setattr(replay_buffer, "tq", prompts)
    monkeypatch.setattr(trainer_module, "tq", prompts)
    recipe = load_config(Recipe, base=BASE, overrides=[f"rollout.refill={rounds}"])
    buffer = buffer_of(recipe, prompts)
    prompts.submit(TASKS)
    batch, metrics = buffer.sample(global_steps=1, partition_id="train", batch_size=TASKS)
    kept, drawn, used = expected(teaches, rounds)
    assert (metrics["drkernel/prompts"], metrics["drkernel/prompts_kept"], metrics["drkernel/refills"]) == (
        drawn, len(kept), used,
    )  # fmt: skip
    assert metrics.get("drkernel/dropped/equal", 0) == drawn - len(kept) and prompts.submitted == drawn
    assert len(batch.keys) == TASKS * SAMPLES == len({*batch.keys})
    assert sorted(prompts.tags) == sorted(batch.keys), "what was dropped has left the queue"

    def lesson(keys):
        rows = TurnRows([unpack(prompts.columns[key]) for key in keys], trainer_module._groups(keys), 8)
        flat = -torch.ones(len(keys), 8)
        taught = teach(rows, flat, flat, flat, recipe.rl.learner, seed=1, sequences=1.0, planned=48)
        return {key: tuple(map(tuple, (taught.advantages_BT[b].tolist(), taught.weights_BT[b].tolist())))
                for b, key in enumerate(keys) if taught.mask_BT[b].any()}  # fmt: skip

    wanted = [f"p{number}_{sample}_0" for number in kept for sample in range(SAMPLES)]
    assert lesson(batch.keys) == (lesson(wanted) if wanted else {})


def test_evaluations_are_sampled_as_they_are(monkeypatch):
    prompts = Prompts([False] * 3)
    monkeypatch.setattr(replay_buffer, "tq", SimpleNamespace(
        kv_list=lambda: {"val": dict(prompts.tags)}, kv_clear=prompts.kv_clear))  # fmt: skip
    prompts.submit(3)
    batch, metrics = buffer_of(load_config(Recipe, base=BASE), prompts).sample(1, "val", 3)
    assert len(batch.keys) == 3 * SAMPLES and metrics == {} and prompts.submitted == 3


def test_the_learners_terms_are_the_recipes():
    buffer = buffer_of(load_config(Recipe, base=BASE), Prompts([]))
    assert buffer.learner == LearnerConfig(mismatch=[], rejection=["uninformative"], scale=3.0) and buffer.rounds == 5
