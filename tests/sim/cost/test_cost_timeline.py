"""Host and device on one clock."""

import pytest

from drkernel.sim.cost.records import CostEstimate, combine
from drkernel.sim.cost.timeline import Timeline
from drkernel.sim.spec import get_spec

SPEC = get_spec("h100")


def test_a_full_queue_hides_the_host_and_an_empty_one_waits_for_it() -> None:
    line = Timeline(SPEC, host_lead=0.0)
    for _ in range(10):
        line.add("library", "aten.mm", CostEstimate(1e-3))
    assert line.elapsed_seconds == pytest.approx(SPEC.launch_overhead + 10e-3 + SPEC.event_overhead)
    line = Timeline(SPEC, host_lead=0.0)
    for _ in range(10):
        line.add("custom", "tiny", CostEstimate(1e-6))
    assert line.elapsed_seconds == pytest.approx(10 * SPEC.kernel_launch_overhead + 1e-6 + SPEC.event_overhead)
    assert line.device_seconds == pytest.approx(10e-6)


def test_the_flush_before_a_timed_call_hides_its_first_launches() -> None:
    line = Timeline(SPEC)
    line.add("custom", "k", CostEstimate(1e-6))
    assert line.elapsed_seconds == pytest.approx(1e-6 + SPEC.event_overhead)
    for _ in range(1000):
        line.add("custom", "k", CostEstimate(1e-6))
    launched = 1001 * SPEC.kernel_launch_overhead
    assert line.elapsed_seconds == pytest.approx(launched - line.host_lead + 1e-6 + SPEC.event_overhead)


def test_a_synchronising_copy_stalls_the_host() -> None:
    line = Timeline(SPEC, host_lead=0.0)
    line.add("library", "aten.mm", CostEstimate(1e-3))
    assert line.host < 1e-4
    line.add_copy("memcpy device to host", 4)
    assert line.host == line.device_free > 1e-3 + SPEC.copy_latency
    big = Timeline(SPEC, host_lead=0.0)
    big.add_copy("memcpy", 5.5e10)
    assert big.device_free == pytest.approx(1.0, rel=0.01)


def test_host_work_alone_counts_once_the_device_has_nothing_to_do() -> None:
    line = Timeline(SPEC, host_lead=0.0)
    for _ in range(100):
        line.add_host()
    assert line.elapsed_seconds == pytest.approx(100 * SPEC.host_op_overhead)
    assert line.profile("sim:h100").rows == ()


def test_the_profile_adds_up_and_names_the_dominant_bound() -> None:
    line = Timeline(SPEC)
    line.add(
        "custom", "k", CostEstimate(1e-3, dram_bytes=1e6, flops={"fp32": 5.0, "sfu": 9.0}, bound="memory", roofline=0.5)
    )
    line.add("custom", "k", CostEstimate(3e-3, bound="compute", roofline=0.9))
    line.add("library", "aten.mm", CostEstimate(4e-3, bound="compute"))
    profile = line.profile("sim:h100")
    assert [row.name for row in profile.rows] == ["k", "aten.mm"] or profile.rows[0].seconds == profile.rows[1].seconds
    row = next(row for row in profile.rows if row.name == "k")
    assert (row.calls, row.bound, row.bytes, row.flops) == (2, "compute", 1e6, 5.0)
    assert row.roofline == pytest.approx((0.5 * 1 + 0.9 * 3) / 4)
    assert profile.coverage == pytest.approx(0.5)
    assert sum(row.share for row in profile.rows) == pytest.approx(1)
    assert profile.kind == "modelled"


def test_an_operator_of_several_kernels_adds_them_up() -> None:
    parts = [CostEstimate(1e-3, flops={"fp32": 1.0}, parts={"dram": 1e-3}, bound="memory"),
             CostEstimate(3e-3, flops={"fp32": 2.0}, parts={"dram": 2e-3}, bound="compute", roofline=1.0)]  # fmt: skip
    total = combine(parts)
    assert (total.seconds, total.flops, total.parts, total.kernels) == (4e-3, {"fp32": 3.0}, {"dram": 3e-3}, 2)
    assert total.bound == "compute" and total.roofline == pytest.approx(0.75)
    assert combine([]).kernels == 0 and combine([parts[0]]) is parts[0]
