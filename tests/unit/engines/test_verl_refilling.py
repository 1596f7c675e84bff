"""Refilling, and batches drawn beside the step before, through verl's own buffer of finished trajectories, over a queue
in memory. Needs verl: ``make test-verl``."""

import itertools
import random
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("verl")

from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.v1 import replay_buffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.import_utils import load_extern_type

from drkernel.config import load_config
from drkernel.engines.verl import trainer as trainer_module
from drkernel.engines.verl.translate import translate
from drkernel.engines.verl.turns import pack, teach, unpack
from drkernel.rl.run.learner import LearnerConfig, TurnFacts, TurnRows
from drkernel.rl.run.recipe import Recipe

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

    version = 0
    """updates that the weights of the sampler have seen"""

    def __init__(self, teaches):
        self.teaches, self.submitted, self.tags, self.columns = list(teaches), 0, {}, {}

    def submit(self, count):
        """Play the next prompts: all answers of those that teach nothing earn the same."""
        for number in range(self.submitted, self.submitted + count):
            self.tags[f"p{number}"] = {"is_prompt": True, "status": "finished", "global_steps": 1}
            for sample in range(SAMPLES):
                reward = 1.0 + number + (sample if self.teaches[number] else 0)
                turns = [TurnFacts(4 * k, 4 * k + 3, True, reward=reward * k, correct=True, turn=k) for k in (0, 1)]
                self.tags[f"p{number}_{sample}_0"] = {"status": "success", "min_global_steps": self.version}
                self.columns[f"p{number}_{sample}_0"] = pack(turns)
        self.submitted += count

    def kv_list(self, partition_id=None):
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


def begin(prompts, recipe, place):
    """The trainer that draws ahead, with what its methods use of verl's."""
    trainer = object.__new__(trainer_module.AheadTrainer)
    manager = SimpleNamespace(update_weights=lambda steps: setattr(prompts, "version", steps))
    trainer.__dict__ |= {
        "config": OmegaConf.create({"data": {"train_batch_size": TASKS}, "trainer": {"default_local_dir": str(place)}}),
        "replay_buffer": buffer_of(recipe, prompts), "standalone_checkpoint_manager": manager, "timing_raw": {},
        "hybrid_rollout_config": SimpleNamespace(enable_switch=False), "prev_step_profile": False,
        "_step_sample_wait_seconds": 0.0, "_sample_start": 0.0, "total_training_steps": STEPS,
        "_add_batch_to_generate": lambda: prompts.submit(TASKS),
    }  # fmt: skip
    trainer._load_checkpoint()
    manager.update_weights(trainer.global_steps)
    trainer.global_steps += 1
    return trainer


def steps(trainer, prompts):
    """verl's loop: the keys of each step's batch, and the versions of the weights that sampled it; each before its
    update reaches the sampler."""
    while trainer.global_steps <= STEPS:
        trainer.prepare_step()
        batch, _ = trainer.replay_buffer.sample(trainer.global_steps, "train", TASKS)
        trainer.on_sample_end()
        trainer._save_checkpoint()
        yield sorted(batch.keys), {tag["min_global_steps"] for tag in batch.tags}
        trainer.on_step_end()
        prompts.kv_clear("train", batch.keys)
        trainer.global_steps += 1


STEPS = 5


@pytest.mark.parametrize("refill", [0, 2])
def test_a_batch_is_sampled_by_the_weights_before_the_last_update_also_after_an_interruption(
    monkeypatch, tmp_path, refill
):
    saved = {}

    def load(trainer):
        trainer.global_steps = max(saved, default=0)
        if saved:
            trainer.replay_buffer.prompts.__dict__ |= deepcopy(saved[trainer.global_steps])

    monkeypatch.setattr(PPOTrainer, "_load_checkpoint", load)
    monkeypatch.setattr(
        PPOTrainer, "_save_checkpoint",
        lambda trainer: saved.update({trainer.global_steps: deepcopy(trainer.replay_buffer.prompts.__dict__)}),
    )  # fmt: skip
    recipe = load_config(Recipe, base=BASE, overrides=[f"rollout.refill={refill}", "rollout.staleness=1"])
    draw = random.Random(3)
    teaches = [draw.random() < 0.6 for _ in range(TASKS * 3 * (STEPS + 1))]

    def run(place, count):
        prompts = Prompts(teaches)
        for module in (replay_buffer, trainer_module):
            monkeypatch.setattr(module, "tq", prompts)
        monkeypatch.setattr(trainer_module.KernelBuffer, "prompts", prompts, raising=False)
        going = steps(begin(prompts, recipe, place), prompts)
        return list(itertools.islice(going, count))

    whole = run(tmp_path / "whole", STEPS)
    assert [versions for _, versions in whole] == [{0}, {0}, {1}, {2}, {3}]
    assert len({key for keys, _ in whole for key in keys}) == STEPS * TASKS * SAMPLES
    saved.clear()
    first, then = run(tmp_path / "broken", 3), run(tmp_path / "broken", STEPS)
    assert first == whole[:3] and then == whole[3:]


def test_the_learners_terms_are_the_recipes():
    buffer = buffer_of(load_config(Recipe, base=BASE), Prompts([]))
    assert buffer.learner == LearnerConfig(mismatch=[], rejection=["uninformative"], scale=3.0) and buffer.rounds == 5
