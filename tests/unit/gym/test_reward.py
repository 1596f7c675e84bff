"""The reward's terms against figures worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from drkernel.config import ConfigError
from drkernel.gym.reward import RewardConfig, check_reward, clip_speedup, reward, rewards
from drkernel.verdict import Profile, ProfileRow, Verdict
from verdicts import speedup_of, verdict_of


def verdict(status="correct", speedup=None, low=None, coverage=None) -> Verdict:
    return verdict_of(status, speedup=None if speedup is None else speedup_of(speedup, low), coverage=coverage)


def test_terms_of_a_correct_answer():
    got = reward(verdict(speedup=2.0, coverage=0.5))
    assert (got.correctness, got.speedup, got.coverage, got.penalty) == (0.5, 1.0, 0.25, 0.0)
    assert got.total == pytest.approx(1.75)


@pytest.mark.parametrize(
    ("ratio", "counted"), [(0.5, 0.5), (0.999, 0.999), (1.0, 1.0), (2.5, 2.5), (3.0, 3.0), (900.0, 3.0)]
)
def test_default_clip(ratio, counted):
    assert clip_speedup(ratio, RewardConfig()) == counted


def test_a_lower_bound_can_be_asked_for():
    bounded = RewardConfig(speedup_min=1.0)
    assert clip_speedup(0.999, bounded) == 0.0 and clip_speedup(1.0, bounded) == 1.0


def test_full_recipe_counts_slow_answers_in_proportion():
    got = reward(verdict(speedup=0.4), RewardConfig(speedup_min=0.0))
    assert got.total == pytest.approx(0.5 + 0.5 * 0.4)


def test_lower_end_of_the_interval():
    config = RewardConfig(speedup_from="low", speedup_min=1.0)
    assert reward(verdict(speedup=1.5, low=0.9), config).speedup == 0.0
    assert reward(verdict(speedup=1.5, low=1.2), config).speedup == pytest.approx(0.6)


def test_unknown_speedup_and_coverage_earn_nothing():
    assert reward(verdict()).total == 0.5


@pytest.mark.parametrize("status", ["incorrect", "compile_error", "runtime_error", "timeout", "out_of_memory", "hack"])
def test_everything_else_costs_the_penalty(status):
    fast = verdict(status, speedup=3.0, coverage=1.0)
    assert reward(fast).total == 0.0
    got = reward(fast, RewardConfig(penalty=-0.3))
    assert got.total == got.penalty == -0.3


@pytest.mark.parametrize(("ratio", "gain"), [(1.0, 0.0), (2.0, 0.5), (0.5, -0.5), (0.01, -0.5), (100.0, 0.5 * 1.585)])
def test_log_speedup_is_symmetric_and_bounded(ratio, gain):
    got = reward(verdict(speedup=ratio, coverage=0.5), RewardConfig(name="log_speedup"))
    assert got.speedup == pytest.approx(gain, abs=1e-3) and got.total == pytest.approx(0.75 + gain, abs=1e-3)
    assert reward(verdict(), RewardConfig(name="log_speedup")).total == 0.5, "an unknown speedup earns nothing"
    assert reward(verdict("hack"), RewardConfig(name="log_speedup", hack_penalty=-1.0)).total == -1.0


def test_milestones_are_minus_one_to_three():
    config = RewardConfig(name="milestones")
    fast = verdict(speedup=1.06, coverage=1.0)
    compiled = fast.model_copy(update={"baseline": "compile"})
    slow, wrong = verdict(speedup=1.04), verdict("incorrect", speedup=9.0)
    assert [reward(each, config).total for each in (wrong, slow, fast, compiled)] == [-1.0, 1.0, 2.0, 3.0]
    assert reward(verdict(), config).total == 1.0 and reward(fast, config).counted_coverage == 1.0, "PRS needs it"
    assert reward(fast, RewardConfig(name="milestones", options={"margin": 0.1, "wrong": 0.0})).total == 1.0


LADDER = [
    (3.0, 1.0),
    (2.9, 0.8),
    (2.0, 0.8),
    (1.5, 0.6),
    (1.2, 0.4),
    (1.19, 0.2),
    (1.0, 0.2),
    (0.99, -0.1),
    (None, -0.1),
]


@pytest.mark.parametrize(("ratio", "rung"), LADDER)
def test_the_ladder_of_kernelgym(ratio, rung):
    assert reward(verdict(speedup=ratio, coverage=1.0), RewardConfig(name="ladder")).total == rung


def test_the_ladder_s_penalties():
    failed = {"incorrect": -0.3, "runtime_error": -0.3, "compile_error": -0.5, "timeout": -1.0, "hack": -1.0}
    for status, penalty in failed.items():
        assert reward(verdict(status, speedup=3.0), RewardConfig(name="ladder")).total == penalty
    assert reward(verdict("infra_error"), RewardConfig(name="ladder")).masked
    with pytest.raises(ConfigError, match="has no option 'floor'"):
        check_reward(RewardConfig(name="ladder", options={"floor": 1.0}))


def test_hacks_can_cost_more():
    config = RewardConfig(penalty=-0.1, hack_penalty=-1.0)
    assert reward(verdict("hack"), config).total == -1.0
    assert reward(verdict("incorrect"), config).total == -0.1


def test_infra_errors_are_masked_not_scored():
    got = reward(verdict("infra_error", speedup=3.0), RewardConfig(penalty=-1.0))
    assert got.total is None and got.masked


def test_bounds_that_cross_are_refused():
    with pytest.raises(ValidationError, match="speedup_min"):
        RewardConfig(speedup_min=4.0)


@given(st.floats(0, 1e6), st.floats(0, 1), st.floats(0, 2), st.floats(0, 2), st.floats(0, 2), st.floats(0, 3))
def test_total_is_the_sum_of_parts_and_grows_with_speed(ratio, coverage, w_c, w_s, w_p, low):
    config = RewardConfig(correct_weight=w_c, speedup_weight=w_s, coverage_weight=w_p, speedup_min=low)
    got = reward(verdict(speedup=ratio, coverage=coverage), config)
    assert got.total == pytest.approx(got.correctness + got.speedup + got.coverage + got.penalty)
    faster = reward(verdict(speedup=ratio * 1.1, coverage=coverage), config)
    assert faster.total >= got.total - 1e-9


def profile(custom: float, library: float) -> Profile:
    rows = [("mine", "custom", custom), ("aten.mm", "library", library)]
    total = custom + library
    return Profile(
        kind="modelled",
        device="sim:h200",
        rows=tuple(
            ProfileRow(name=name, owner=owner, calls=1, seconds=seconds, share=seconds / total)
            for name, owner, seconds in rows
            if seconds
        ),
        total_seconds=total,
        elapsed_seconds=total,
    )


def test_a_kernel_that_wastes_time_cannot_raise_replaced_coverage():
    """The reference spends 10 us; PyTorch still spends 8 of them, the own kernel 2, or 72 when padded."""
    config, paper = RewardConfig(coverage_from="replaced"), RewardConfig()
    for custom, plain in ((2e-6, 0.2), (72e-6, 0.9)):
        mine = profile(custom, 8e-6)
        lazy = verdict(coverage=mine.coverage).model_copy(
            update={"profile": mine, "reference_profile": profile(0.0, 10e-6)}
        )
        assert reward(lazy, paper).coverage == pytest.approx(0.5 * plain)
        assert reward(lazy, paper).counted_coverage == pytest.approx(plain)
        assert reward(lazy, config).coverage == pytest.approx(0.5 * 0.2)
        unpaid = RewardConfig(coverage_from="replaced", coverage_weight=0.0)
        assert reward(lazy, unpaid).counted_coverage == pytest.approx(0.2), "PRS needs it without PR, too"


def test_a_whole_kernel_twice_as_slow_earns_more_than_a_lazy_one():
    """Eq. 8 with the recipes' weights: coverage can buy more than half of the speed that it costs."""
    paper = RewardConfig(correct_weight=1, speedup_weight=1, coverage_weight=1)
    lazy = reward(verdict(speedup=1.0, coverage=0.2), paper).total
    slow = reward(verdict(speedup=0.5, coverage=1.0), paper).total
    assert (lazy, slow) == (pytest.approx(2.2), pytest.approx(2.5))


def test_replaced_coverage_is_full_when_nothing_is_left_and_never_negative():
    config = RewardConfig(coverage_from="replaced")
    done = verdict(coverage=1.0).model_copy(
        update={"profile": profile(5e-6, 0.0), "reference_profile": profile(0.0, 10e-6)}
    )
    worse = verdict(coverage=0.5).model_copy(
        update={"profile": profile(20e-6, 20e-6), "reference_profile": profile(0.0, 10e-6)}
    )
    assert reward(done, config).coverage == 0.5 and reward(worse, config).coverage == 0.0
    assert reward(verdict(coverage=0.5), config).coverage == 0.25, "without profiles the plain coverage counts"


def test_a_plug_in_that_returns_a_number_is_refused_by_its_name(monkeypatch):
    monkeypatch.setattr(rewards, "get", lambda name: lambda verdict, config: 1.0)
    with pytest.raises(ConfigError, match=r"episode.reward: mine returned float, not a Reward"):
        reward(verdict(speedup=2.0), RewardConfig(name="mine"))
