"""GPU specifications: complete, cited, and consistent with each other."""

import pytest

from drkernel.sim.spec import GPUSpec, get_spec, host_name, known_gpus, known_hosts

NAMES = known_gpus()


@pytest.mark.parametrize("name", NAMES)
def test_every_field_of_every_gpu_has_a_source(name: str) -> None:
    spec = get_spec(name)
    fields = set(GPUSpec.model_fields) - {"name", "host", "peak", "sources"}
    assert fields <= set(spec.sources)
    assert {f"peak.{unit}" for unit in spec.peak} <= set(spec.sources)
    assert all(len(text) > 10 for text in spec.sources.values())


@pytest.mark.parametrize("name", NAMES)
def test_peaks_agree_with_the_parts_they_come_from(name: str) -> None:
    spec = get_spec(name)
    lanes = spec.peak["fp32"] / spec.boost_clock_hz / 2 / spec.sm_count
    expected = {"nvidia": (64, 128), "amd": (128,)}[spec.vendor]
    assert min(abs(lanes / count - 1) for count in expected) < 0.04
    if spec.capability >= (8, 0):  # older ones have neither bf16 nor TF32
        assert spec.peak["tensor_fp16"] == spec.peak["tensor_bf16"] > spec.peak["tensor_tf32"]
    # GeForce multiplies TF32 no faster than fp32
    assert spec.peak["tensor_fp16"] > spec.peak["tensor_tf32"] > 0.99 * spec.peak["fp32"]
    assert spec.clock_hz <= spec.boost_clock_hz
    assert spec.l2_bandwidth > spec.hbm_bandwidth
    assert spec.max_smem_per_block <= spec.smem_per_sm


def test_a_base_is_merged_and_overridden() -> None:
    h100, h200 = get_spec("h100"), get_spec("h200")
    assert h200.sm_count == h100.sm_count and h200.peak == h100.peak
    assert h200.hbm_bandwidth / h100.hbm_bandwidth == pytest.approx(4.8 / 3.35)
    assert "H200" in h200.sources["hbm_bandwidth"] and "H100" in h200.sources["sm_count"]


def test_names_are_case_insensitive_and_unknown_ones_say_which_exist() -> None:
    assert get_spec("H100") is get_spec("h100")
    owned = {"a100", "a100_40", "a10g", "l4", "l40s", "rtx3090", "rtx4090", "rtx5090", "rtx_pro_6000", "t4"}
    assert owned <= set(known_gpus()) and "_common" not in known_gpus()
    with pytest.raises(ValueError, match=r"no GPU named 'h1000'; there are: .*b200.*mi300x"):
        get_spec("h1000")


def test_vendor_facts() -> None:
    assert get_spec("h100").capability == (9, 0) and get_spec("b200").capability == (10, 0)
    assert get_spec("a100").warp_size == 32 and get_spec("mi300x").warp_size == 64
    assert get_spec("mi300x").backend == "hip"


@pytest.mark.parametrize("host", known_hosts())
def test_a_card_in_a_host_has_the_hosts_figures_and_no_others(host: str) -> None:
    card, there = get_spec("a100"), get_spec(f"a100@{host}")
    factor = there.launch_overhead / card.launch_overhead
    for field in set(GPUSpec.model_fields) - {"name", "host", "sources"}:
        scaled = field in (
            "launch_overhead", "kernel_launch_overhead", "host_op_overhead", "compiled_call_overhead",
            "compiled_launch_overhead",
        )  # fmt: skip
        expected = factor * getattr(card, field) if scaled else getattr(card, field)
        assert getattr(there, field) == (pytest.approx(expected) if scaled else expected), field
    assert there.host == host and (there is card) == (host == card.host)
    assert len(there.sources["launch_overhead"]) > 10


def test_a_host_is_named_or_given_by_its_seconds() -> None:
    assert get_spec("l4@1.5e-5").name == get_spec("L4@15us").name == "l4@15us"
    assert get_spec("l4@15us").kernel_launch_overhead == pytest.approx(2 * get_spec("l4").kernel_launch_overhead)
    assert host_name("0.02ms") == "20us" and host_name("Modal") == "modal"
    for wrong in ("slow", "9s", "-1us", "0"):
        with pytest.raises(ValueError, match="small operator"):
            get_spec(f"l4@{wrong}")
