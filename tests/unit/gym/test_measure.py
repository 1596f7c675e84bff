"""Measured times: the interval's coverage, and the limits that a clock must respect."""

from types import SimpleNamespace

import numpy as np
import pytest

from drkernel.gym.judge.measured_timing import (
    Block,
    clock_decides,
    clock_noise,
    clocks_disagree,
    median_seconds,
    speedup_interval,
)


def blocks(rng, seconds: float, *, count: int = 8, size: int = 8, noise: float = 0.05, drift=None) -> list[Block]:
    """Blocks of log-normal samples; ``drift`` multiplies whole blocks, as a clock that changes does."""
    drift = np.ones(count) if drift is None else drift
    samples = seconds * drift[:, None] * np.exp(noise * rng.standard_normal((count, size)))
    return [Block(tuple(row), float(row.sum())) for row in samples]


def test_a_module_against_itself_gives_an_interval_that_contains_one():
    """Nominal 95%; over 300 runs a fraction below 0.9 would be 4 standard errors off."""
    inside = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        drift = np.exp(0.1 * rng.standard_normal(8))  # both sides of a pair see the same conditions
        speedup = speedup_interval(blocks(rng, 1e-4, drift=drift), blocks(rng, 1e-4, drift=drift), seed=seed)
        inside += speedup.low <= 1.0 <= speedup.high
    assert inside / 300 >= 0.9


def test_a_real_difference_is_seen_and_bracketed():
    rng = np.random.default_rng(0)
    speedup = speedup_interval(blocks(rng, 2e-4), blocks(rng, 1e-4))
    assert speedup.low > 1.8 and speedup.high < 2.2 and speedup.low <= speedup.value <= speedup.high
    assert speedup.kind == "measured"


def test_more_samples_narrow_the_interval():
    rng = np.random.default_rng(1)
    few = speedup_interval(blocks(rng, 1e-4, count=3), blocks(rng, 1e-4, count=3))
    many = speedup_interval(blocks(rng, 1e-4, count=30), blocks(rng, 1e-4, count=30))
    assert many.high - many.low < few.high - few.low


def test_drift_that_hits_both_sides_does_not_move_the_ratio():
    rng = np.random.default_rng(2)
    drift = np.linspace(1.0, 2.0, 8)
    speedup = speedup_interval(blocks(rng, 1e-4, drift=drift, noise=0.01), blocks(rng, 1e-4, drift=drift, noise=0.01))
    assert speedup.value == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("samples", [(), (0.0, 1e-4), (float("nan"),), (float("inf"),), (-1e-4,)])
def test_a_missing_or_impossible_time_is_an_error_not_a_fast_one(samples):
    with pytest.raises(ValueError, match="timed call"):
        median_seconds([Block(samples, 1.0)] if samples else [])


def test_sides_must_be_paired():
    rng = np.random.default_rng(3)
    with pytest.raises(ValueError, match="paired"):
        speedup_interval(blocks(rng, 1e-4, count=2), blocks(rng, 1e-4, count=3))


def test_clocks_that_disagree_are_noticed():
    honest = [Block((1e-3,) * 10, 10 * 1e-3 + 10 * 30e-6)]
    assert clocks_disagree(honest) is None
    side_stream = [Block((1e-5,) * 10, 10 * 1e-3)]
    assert clocks_disagree(side_stream) > 50
    assert clocks_disagree([Block((0.0,) * 10, 1.0)]) == float("inf")


def test_a_busy_host_accuses_nobody():
    calm, busy = Block((1e-3,) * 5, 5.1e-3), Block((1e-3,) * 5, 40e-3)
    assert clocks_disagree([calm, calm, busy, busy]) is None
    assert clocks_disagree([busy, busy, busy, busy]) == pytest.approx(8.0, rel=0.1)
    assert clocks_disagree([busy, busy, busy, busy], clock_noise([calm, busy])) is None  # its reference met the same


def test_launch_bound_calls_are_not_accused():
    """A kernel of 3 us and 20 us of the host's: its clock says seven times as long, honestly."""
    assert clocks_disagree([Block((3e-6,) * 100, 100 * 20e-6)]) is None


def test_the_judges_clock_decides_where_it_says_more():
    """Forged events, three tenths of the truth, on one side only."""
    rng = np.random.default_rng(4)
    honest = blocks(rng, 1e-4)
    forged = [Block(tuple(0.3 * s for s in block.device_seconds), block.wall_seconds) for block in blocks(rng, 1e-4)]
    assert speedup_interval(honest, forged).value == pytest.approx(1.0, abs=0.05)
    assert median_seconds(forged) == pytest.approx(1e-4, rel=0.05)
    assert median_seconds([Block((1e-4,) * 5, 0.0)]) == 1e-4  # a block that seems shorter shows the clock's own noise
    partly = [*forged[:6], *honest[6:]]
    assert speedup_interval(honest, partly).value == pytest.approx(1.0, abs=0.05)


def test_what_all_blocks_of_a_session_share_is_in_the_interval():
    """As on an H100: in one session every call of a kernel of 4.6 us takes 0.15 us more, and of one of 180 us."""
    rng = np.random.default_rng(6)

    def session(seconds: float, more: float) -> list[Block]:
        samples = np.round((seconds + more + rng.normal(0, 1e-7, (6, 250))) / 32e-9) * 32e-9
        return [Block(tuple(block), sum(block)) for block in samples]

    for seconds, width in ((4.6e-6, 0.15), (180e-6, 0.004)):
        speedup = speedup_interval(session(seconds, 0.15e-6), session(seconds, 0.0))
        assert speedup.low < 1 < speedup.high and speedup.high - speedup.low < width


def test_a_hiccup_in_some_blocks_is_no_escape():
    """As on an H100: one block in four has 20 to 90 us a call more by the judge's clock, the others up to 15 us."""
    rng, decided = np.random.default_rng(7), 0

    def session() -> list[Block]:
        excess = rng.gamma(2, 3e-6, 4) + (rng.random(4) < 0.25) * rng.uniform(2e-5, 9e-5, 4)
        return [Block((4.6e-6,) * 250, 250 * (4.6e-6 + more)) for more in excess]

    for _ in range(200):
        decided += clock_decides(session(), session())
    assert decided < 10


def test_noise_of_the_judges_clock_is_no_time():
    """As on an H200: kernels of 4.4 us, of which the judge's clock says 4 to 20 us from block to block."""
    rng = np.random.default_rng(5)

    def noisy(scale: float) -> list[Block]:
        return [Block(b.device_seconds, sum(b.device_seconds) + 8 * rng.gamma(2, 4e-6)) for b in blocks(rng, scale)]

    for _ in range(20):
        speedup = speedup_interval(noisy(6.6e-6), noisy(4.4e-6))
        assert speedup.value == pytest.approx(1.5, rel=0.1) and speedup.high - speedup.low < 0.3


def test_no_call_takes_less_than_nothing_takes():
    """Events forged to a tenth of the truth, of a kernel that the judge's clock is too coarse for."""
    block = Block((4e-7,) * 5, 2e-5, floor=2e-6)
    assert median_seconds([block], by_clock=False) == 2e-6


@pytest.mark.parametrize("repeated", [frozenset(), frozenset({4, 5, 6, 7, 8, 9})])
def test_events_that_are_forged_to_the_right_sum_gain_nothing(repeated):
    """Short for most calls, or for those that are samples, and long for the rest."""
    forged = Block((1e-6,) * 6 + (2.5e-3,) * 4, 10e-3, repeated)
    assert sum(forged.device_seconds) > 10e-3
    assert median_seconds([forged]) == pytest.approx(1e-3)


def test_calls_on_inputs_that_an_earlier_one_had_are_no_samples():
    """What is remembered from one call for the next gains nothing."""
    block = Block((3e-3, 1e-6, 1e-6, 3e-3, 1e-6), 6e-3, repeated=frozenset({1, 2, 4}))
    assert median_seconds([block]) == 3e-3


def test_each_tuned_kernel_keeps_the_configuration_that_is_its_own(monkeypatch):
    """Two kernels may have the same constants, and other numbers of warps at a task's own sizes."""
    import triton
    from triton.runtime.autotuner import Autotuner

    from drkernel.gym.runner.runner import prefer

    monkeypatch.setattr(Autotuner, "prune_configs", lambda tuner: tuner.configs)
    prefer([("moments", {"BLOCK": "64"}, 8, 4), ("scaled", {"BLOCK": "64"}, 8, 3)])
    configs = [triton.Config({}, num_warps=8, num_stages=stages) for stages in (2, 3, 4)]

    def stages(name):
        tuner = SimpleNamespace(configs=configs, base_fn=SimpleNamespace(__name__=name))
        return [config.num_stages for config in Autotuner.prune_configs(tuner)]

    assert [stages(name) for name in ("moments", "scaled", "other")] == [[4], [3], [2, 3, 4]]
