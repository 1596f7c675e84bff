"""The table on which estimators are compared: its exact figures are those of conversations, and arms differ in what
they say."""

import dataclasses
import re

import pytest
import torch

from drkernel.rl.data.problem import generate_problems, reference_source
from drkernel.rl.data.writer import can_have
from estimator_table import (
    FACTS,
    FAINT,
    FAINT_STEPS,
    FLAWS,
    QUESTIONS,
    STEPS,
    Plan,
    Policy,
    Setting,
    World,
    plans_of,
    refilled,
    rows_of,
    source_of,
    train,
    with_faint,
)
from verdicts import speedup_of, verdict_of

torch.set_num_threads(1)
SPEEDS = {None: 2.0, "partial": 1.3, "lazy": 1.05}


def verdict(plan, naive):
    """What a judge would say of an answer, without asking one: wide launches are faster."""
    right = plan.depth not in FLAWS or (plan.depth == "stale" and naive)
    status = "correct" if right else "hack" if plan.depth == "stale" else "incorrect"
    value = SPEEDS.get(plan.depth, 2.0) * (0.5 + (plan.size or 256) / 512)
    return verdict_of(
        status,
        speedup=speedup_of(value) if right else None,
        coverage={None: 1.0, "partial": 0.5, "lazy": 0.25}.get(plan.depth, 1.0) if right else None,
    )


@pytest.fixture(scope="module")
def verdicts():
    tables = []
    for problem in generate_problems("train", 5, 0, checked=False):
        plans = plans_of(problem) + [Plan(flaw, None, 4) for flaw in FLAWS if can_have(problem, flaw)]
        tables.append({(plan, naive): verdict(plan, naive) for plan in plans for naive in (False, True)})
    return tables


@pytest.mark.parametrize("context, builds", [("last", True), ("best", True), ("last", False)])
def test_the_exact_figures_are_the_shares_among_many_conversations(verdicts, context, builds):
    setting = Setting(context=context, builds=builds, cheat=0.1)
    world = World(verdicts, setting)
    policy = Policy(world, 2, 0)
    exact = policy.look(setting)
    tasks = torch.arange(len(verdicts)).expand(2, -1)
    draws = torch.rand(2, len(verdicts), 3000, 3, generator=torch.Generator().manual_seed(1))
    answers, _ = policy.play(policy.logprobs().detach(), tasks, draws, setting)
    facts = world.facts[:, tasks[..., None, None], answers].mean((2, 3))
    for number, name in enumerate(FACTS[:-1]):
        assert (facts[number].T - exact[name]).abs().max() < 0.03, name
    fast = world.facts[FACTS.index("fast_1.2")][tasks[..., None, None], answers]
    assert (fast.cummax(-1).values.mean((1, 2)).T - exact["best_1.2"]).abs().max() < 0.03


@pytest.fixture
def faint_steps(monkeypatch):
    for name, rule in FAINT_STEPS.items():
        monkeypatch.setitem(STEPS, name, rule)


def test_a_dropped_answer_is_the_whole_one_without_the_faint_term(faint_steps):
    for problem in generate_problems("train", 40, 0, checked=False):
        faint = with_faint(problem)
        assert f"+ {FAINT} * t" in reference_source(faint)
        plans = plans_of(faint)
        depths = {plan.depth for plan in plans}
        assert {"dropped", None} <= depths <= {"dropped", None, "lazy"}
        whole, dropped = (
            {source_of(faint, plan) for plan in plans if plan.depth == depth} for depth in (None, "dropped")
        )
        assert whole and {re.sub(rf" \+ {FAINT} \* t0?\b", "", source) for source in whole} == dropped
        assert "dropped" not in {plan.depth for plan in plans_of(problem)}


def test_dropping_a_faint_term_pays_by_a_tolerance_alone():
    tables = []
    for problem in generate_problems("train", 3, 0, checked=False):
        dropped = [plan._replace(depth="dropped") for plan in plans_of(problem) if plan.depth is None]
        keys = [(plan, naive) for plan in plans_of(problem) + dropped for naive in (False, True)]
        unpaid = verdict_of("correct", speedup=None, coverage=None)
        tables.append({(p, n): unpaid if p.depth == "dropped" and not n else verdict(p, n) for p, n in keys})
    for naive in (False, True):
        world = World(tables, Setting(naive=naive))
        dropped = world.facts[FACTS.index("dropped")].bool()
        assert dropped.any() and not world.facts[FACTS.index("fast_1.2")][dropped].any()
        assert bool((world.speed[dropped] >= 1.0).all()) == naive


def test_a_cheat_pays_where_nothing_is_checked_and_is_condemned_where_it_is(verdicts):
    for naive in (False, True):
        world = World(verdicts, Setting(cheat=0.2, naive=naive))
        condemned = world.facts[FACTS.index("condemned")].bool()
        assert condemned.any() and bool((world.rewards[condemned] > 0).all()) == naive
        assert bool((world.rewards[condemned] > 0).any()) == naive


def test_lazy_plans_outside_the_bounds_do_not_exist(verdicts):
    world = World(verdicts, Setting(lazy=(1.0, 1.1), tasks=1))
    lazy = world.facts[FACTS.index("lazy")].bool()
    assert lazy.any() and bool(((world.speed[lazy] >= 1.0) & (world.speed[lazy] <= 1.1)).all())


def test_training_makes_answers_faster_and_the_placebo_changes_nothing(verdicts):
    plain = Setting(tasks=4, samples=4, steps=10)
    placebo = dataclasses.replace(plain, learner={"advantage": {"name": "placebo"}})
    other = dataclasses.replace(plain, learner={"advantage": {"name": "reinforce"}})
    figures = [torch.tensor(train(World(verdicts, s), s, 3, 0)["fast_1.2"])[:, -1] for s in (plain, placebo, other)]
    assert (figures[0][-1] > figures[0][0]).all()
    assert torch.allclose(figures[0], figures[1], atol=2e-3) and not torch.allclose(figures[0], figures[2], atol=5e-3)


def test_refilling_keeps_the_first_prompts_that_teach_and_counts_whole_rounds():
    setting = Setting(tasks=2, refill=2, samples=2, turns=1)
    world = dataclasses.make_dataclass("World", ["rewards", "own", "speed", "cover", "right"])(
        *[torch.tensor([[0.0, 1.0]])] * 5
    )
    teaches = torch.tensor([[0, 1, 1, 1, 0, 1], [0, 0, 0, 1, 0, 0], [1, 1, 0, 0, 0, 0]]).bool()
    answers = torch.stack([torch.zeros(3, 6), teaches], -1).long()[..., None]
    use = torch.ones(3, 6, 2, 1, dtype=torch.bool)
    sampled, kept = refilled(rows_of(world, torch.zeros(3, 6, dtype=torch.int64), answers, use), 3, setting)
    assert kept.tolist() == [[0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert sampled.sum(1).tolist() == [4, 6, 2]


def test_every_question_has_two_placebos_and_arms_that_the_learner_knows(verdicts):
    for question in QUESTIONS.values():
        settings = question.settings()
        assert list(settings)[-2:] == ["placebo", "placebo, other draws"]
        assert {s.steps for s in settings.values()} == {question.setting({}).steps}
    setting = dataclasses.replace(QUESTIONS["lazy"].settings()["PR, PRS soft"], tasks=2, samples=2, steps=1, every=1)
    assert 0 < train(World(verdicts, setting), setting, 2, 0)["out of the loss"][0] < 1
