"""Batches that are sampled and graded beside the learner: whose weights sample them, what an interruption leaves."""

import asyncio
import copy
import hashlib
import threading

import pytest
import torch

from drkernel.episode.episode import Episode
from drkernel.rl.model.policy import Policy
from drkernel.rl.model.sampler import Sampler, SamplerAnswerer
from drkernel.rl.run.learner import Learner
from drkernel.rl.run.optimizers import make_optimizer
from drkernel.rl.run.reinforce import step_tasks
from drkernel.rl.run.rollout import Rollout, plan_jobs
from drkernel.rl.run.sitting import Stopped
from drkernel.rl.run.trainer import Run
from fakes import FakePool, make_verdict, tiny_recipe
from tiny_runs import assert_same_run, fine_tuned, rows, train, weights

STALE = {
    "rollout": {"staleness": 1, "tasks": 2},
    "rl": {"steps": 3, "learner": {"lr": 0.003, "mismatch": "tis_token"}},
    "evaluation": {"every": 2, "tasks": 1, "final_tasks": 1, "final_samples": 1},
}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A fine-tuned policy that every run here begins with."""
    return fine_tuned(tmp_path_factory.mktemp("start"))


@pytest.fixture(scope="module")
def stale(tmp_path_factory, start):
    """A run one step off policy that nothing interrupted."""
    recipe = tiny_recipe(tmp_path_factory.mktemp("stale"), **STALE, **start)
    train(recipe)
    return recipe


def test_every_batch_but_the_first_is_one_update_behind_and_the_mismatch_shows_it(stale):
    steps = [row for row in rows(stale, "metrics.jsonl") if row["stage"] == "rl"]
    assert [row["lag"] for row in steps] == [0, 1, 1]
    gaps = [row["mismatch/max_abs_log_ratio"] for row in steps]
    assert gaps[0] < 1e-4 and all(gap > 1e-3 for gap in gaps[1:])


def test_it_is_what_one_thread_computes_that_keeps_the_weights_of_one_update_before(stale):
    terms, rl = stale.rollout, stale.rl
    policy = Policy.load(stale.policy)
    learner = Learner(
        policy, make_optimizer(policy, rl.learner.lr, 0.0), rl.learner, temperature=1.0, planned=stale.planned_turns
    )
    tasks, pool = stale.train_tasks.tasks("train"), FakePool()
    older = copy.deepcopy(policy.model)
    for number in range(rl.steps):
        present = copy.deepcopy(policy.model)
        sampling = Policy(older, policy.tokenizer, stale.policy)
        sampler = Sampler(sampling.make_decoder(terms.sampling.rows, terms.context), policy.tokenizer, terms.sampling)
        rollout = Rollout(
            SamplerAnswerer(sampler, policy.tokenizer),
            lambda: Episode(pool, stale.episode),
            judge_seed=stale.judge_seed,
        )
        chosen = step_tasks(tasks, number * terms.tasks, terms.tasks, stale.seed)
        jobs = plan_jobs(chosen, terms.samples, stale.seed * 100_003 + number)
        learner.learn(asyncio.run(rollout.play(jobs)), number, stale.seed * 1_000_003 + number)
        older = present
    found, state = weights(stale), policy.model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in found.items())


def test_answers_are_graded_while_the_learner_works(tmp_path, monkeypatch, start):
    """The learner of each step but the last ends only after an answer of the next step came to be graded."""
    learning, graded = threading.Event(), threading.Event()
    steps, learn = [], Learner.learn

    def waiting(self, trajectories, step, seed):
        steps.append(step)
        if step < 2:
            graded.clear()
            learning.set()
            assert graded.wait(60), "nothing was graded beside the learner"
            learning.clear()
        return learn(self, trajectories, step, seed)

    class Pool(FakePool):
        async def evaluate(self, request):
            if learning.is_set():
                graded.set()
            return await super().evaluate(request)

    monkeypatch.setattr(Learner, "learn", waiting)
    train(tiny_recipe(tmp_path, **STALE, **start), Pool())
    assert steps == [0, 1, 2]


@pytest.mark.parametrize(("how", "after"), [("stopped", 1), ("crashed", 1), ("crashed", 2)])
def test_a_run_that_ends_early_goes_on_to_the_same_result(stale, start, tmp_path, how, after):
    """The checkpoint has the weights of the batch that was under way: it is sampled again by them."""
    recipe = tiny_recipe(tmp_path, **STALE, **start, checkpoint={"seconds": 0})
    pool = FakePool(delay=0.001)
    run = Run(recipe, pool)

    def progress(kind, row):
        if (kind, row.get("step")) == ("rl", after) and how == "stopped":
            run.stop_requested = True
        if kind == "turn" and (row["step"], row["graded"]) == (after + 1, 7) and how == "crashed":
            raise RuntimeError("power cut")

    run.progress = progress
    with pytest.raises(Stopped if how == "stopped" else RuntimeError):
        asyncio.run(run.run())
    train(recipe, pool)
    assert_same_run(stale, recipe)


def test_what_the_grader_says_decides_the_next_batch_as_well(tmp_path, start):
    """Refilling one step ahead: prompts that teach nothing are replaced, and no prompt comes twice."""
    learner = {"lr": 0.003, "rejection": ["uninformative"]}
    terms = {
        **STALE,
        "rollout": {"staleness": 1, "tasks": 2, "refill": 2},
        "rl": {"steps": 3, "learner": learner, "log_samples": 999},
    }

    class Pool(FakePool):
        async def evaluate(self, request):
            if hashlib.sha256(request.task.id.encode()).digest()[0] % 2:
                return make_verdict(request, "incorrect")
            return await super().evaluate(request)

    recipe = tiny_recipe(tmp_path, **terms, **start)
    train(recipe, Pool())
    steps = [row for row in rows(recipe, "metrics.jsonl") if row["stage"] == "rl"]
    drawn = {(r["step"], r["group"]): r["task_id"] for r in rows(recipe, "samples.jsonl") if r["split"] == "train"}
    assert sum(row["refills"] for row in steps) and len(drawn) == sum(row["prompts"] for row in steps)
    assert len({*drawn.values()}) == min(len(drawn), recipe.train_tasks.count)
