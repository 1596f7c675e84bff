"""Methods by name: what a recipe can say, and that names lead to the functions they promise."""

import dataclasses
import math

import pytest
import torch

from drkernel.config import ConfigError
from drkernel.registry import Registry
from drkernel.rl.maths import advantages as adv
from drkernel.rl.maths import losses, otb
from drkernel.rl.maths.mismatch import MismatchSettings
from drkernel.rl.run.optimizers import Constant
from drkernel.rl.run.registry import TurnBatch, advantage, loss, mismatch, rejection, schedule
from recorded import check_advantage, random_turns

torch.set_num_threads(1)


OWN = ("grpo", "grpo_std", "kevin", "otb", "otb_tir", "reinforce", "rloo", "trloo")


@pytest.fixture
def batch():
    return random_turns()


@pytest.mark.parametrize("name", OWN)
def test_every_advantage_is_finite_and_zero_on_invalid_turns_and_does_not_depend_on_order(name, batch):
    assert set(OWN) <= set(advantage.names())
    check_advantage(name, batch)


def test_names_lead_to_the_functions_they_promise(batch):
    returns, group = batch.returns(), adv.group_ids(batch.task_B, batch.turn_B)
    assert torch.equal(advantage.get("trloo")(batch), adv.trloo(returns, group, batch.valid_B))
    assert torch.equal(advantage.get("grpo")(batch), adv.grpo(returns, group, batch.valid_B))
    assert torch.equal(advantage.get("grpo_std")(batch), adv.grpo_std(returns, group, batch.valid_B))
    for name in ("grpo", "grpo_std"):
        with pytest.raises(ConfigError, match=f"{name} has no option 'std'"):
            advantage.check("advantage", name, {"std": True})
    totals = batch.totals()
    rloo = adv.rloo(totals, totals, batch.task_B, batch.trajectory_B, batch.valid_B)
    assert torch.equal(advantage.get("rloo_total")(batch), rloo) and not torch.equal(advantage.get("rloo")(batch), rloo)
    parts = (batch.logprobs_BT, batch.sum_pi_squared_BT, batch.mask_BT & batch.valid_B[:, None], group)
    parts = (*parts, batch.trajectory_B, batch.turn_B)
    for name, left_out in (("otb", False), ("otb_loo", True)):
        form = otb.otb_turns(returns, *parts, leave_one_out=left_out)
        assert torch.equal(advantage.get(name)(batch), form)
    best = adv.flat_best_returns(batch.rewards_B, batch.trajectory_B, batch.turn_B, batch.valid_B)
    assert torch.equal(advantage.get("trloo_best")(batch), adv.trloo(best, group, batch.valid_B))
    first = batch.turn_B == 0
    assert torch.allclose(batch.totals()[first & batch.valid_B], returns[first & batch.valid_B])
    assert torch.equal(advantage.get("kevin")(batch), adv.kevin(batch.returns(0.4), batch.task_B, batch.valid_B))
    assert loss.get("clipped") is losses.clipped
    assert schedule.get("constant")(warmup=2) == Constant(warmup=2)
    assert mismatch.get("mrs")() == MismatchSettings()
    assert loss.names() == ["clipped", "reinforce"]
    assert mismatch.names() == ["mis_sequence", "mis_token", "mrs", "tis_sequence", "tis_token", "trust_region"]
    assert schedule.names() == ["constant", "cosine"]


def test_totals_are_discounted_from_the_first_turn(batch):
    totals = batch.totals(0.5)
    for n in range(12):
        rows = [3 * n + t for t in range(3)]
        expected = sum(0.5**t * float(batch.rewards_B[r]) * bool(batch.valid_B[r]) for t, r in enumerate(rows))
        assert totals[rows].tolist() == pytest.approx([expected] * 3, abs=1e-6)


@pytest.mark.parametrize("name", rejection.names())
def test_rejections_only_take_away(name, batch):
    keep = rejection.get(name)(batch, seed=1)
    assert keep.dtype == torch.bool and not (keep & ~batch.valid_B).any()
    if name == "prs":
        gone = batch.valid_B & ~keep
        assert gone.any() and batch.correct_B[gone].all() and (batch.coverage_B[gone] < 0.4).all()


def test_prs_takes_the_released_codes_options(batch):
    prs = rejection.get("prs")
    plain = prs(batch, seed=1)
    fast = batch.speedup_B >= 1.5
    saved = prs(batch, seed=1, speedup_keeps=1.5)
    assert torch.equal(saved, plain | (fast & batch.valid_B)) and not torch.equal(saved, plain)
    by_launches = prs(batch, seed=1, coverage="launches")
    swapped = dataclasses.replace(batch, coverage_B=batch.launch_coverage_B)
    assert torch.equal(by_launches, prs(swapped, seed=1)) and not torch.equal(by_launches, plain)
    # geometric: one coverage a trajectory, over its valid turns; here the threshold is a hard step
    whole = prs(batch, seed=1, level="geometric", width=0.0, threshold=0.4)
    for n in range(12):
        rows = [3 * n + t for t in range(3) if batch.valid_B[3 * n + t]]
        mean = math.exp(sum(math.log(float(batch.coverage_B[r])) for r in rows) / max(1, len(rows)))
        for r in rows:
            assert bool(whole[r]) == (not bool(batch.correct_B[r]) or mean >= 0.4)
    with pytest.raises(ValueError, match="level turn or geometric"):
        prs(batch, seed=1, level="sequence")


@pytest.mark.parametrize("name", mismatch.names())
def test_every_mismatch_setting_can_be_made(name):
    assert isinstance(mismatch.get(name)(), MismatchSettings)


def test_unknown_and_taken_names_are_refused_and_ones_own_is_one_line(batch):
    with pytest.raises(ValueError, match=r"unknown advantage .*; known: .*grpo, grpo_std, kevin, .*trloo"):
        advantage.get("ppo")
    own: Registry = Registry("advantage")

    @own.register("mine")
    def mine(batch, *, scale=1.0):
        return scale * batch.returns()

    assert torch.equal(own.get("mine")(batch, scale=2.0), 2 * batch.returns())
    with pytest.raises(ValueError, match="exists already"):
        own.register("mine")(mine)
    with pytest.raises(ValueError, match="needs logprobs_BT"):
        advantage.get("otb")(
            TurnBatch(*(getattr(batch, n) for n in ("rewards_B", "task_B", "trajectory_B", "turn_B", "valid_B")))
        )
