"""Reads of memory that nothing wrote are errors where the values have a say in what the kernel does."""

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim


@triton.jit
def use(x, out, HOW: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    known = at < BLOCK // 2
    if HOW == "where":
        tl.store(out + at, tl.where(known, value, 0.0))
    elif HOW == "mask":
        tl.store(out + at, value, mask=known)
    elif HOW == "sum":
        tl.store(out, tl.sum(tl.where(known, value, 0.0)))
    elif HOW == "store":
        tl.store(out + at, value)
    elif HOW == "where the wrong way":
        tl.store(out + at, tl.where(known, 0.0, value))
    elif HOW == "times zero":  # 0 * NaN is NaN
        tl.store(out + at, tl.where(known, value, value * 0.0))
    elif HOW == "reduction":
        tl.store(out, tl.sum(value))
    elif HOW == "maximum":
        tl.store(out, tl.max(value))
    elif HOW == "branch":
        if tl.sum(value) > 1e4:
            tl.store(out, 1.0)
    elif HOW == "condition":
        tl.store(out + at, tl.where(value > 0.5, 1.0, 0.0))
    elif HOW == "address":
        place = tl.where(known, at, 8 + (tl.abs(value) * 4.0).to(tl.int32) % 8)
        tl.store(out + place, 1.0)
    elif HOW == "print":
        tl.device_print("value", value)


def findings(how: str) -> tuple[list[str], torch.Tensor]:
    with sim.device("h100") as dev:
        x = torch.empty(16, device="cuda")
        x[:8] = torch.arange(8.0, device="cuda")
        out = torch.zeros(16, device="cuda")
        use[(1,)](x, out, how, 16)
        return [finding.kind for finding in dev.findings], out.cpu()


@pytest.mark.parametrize("how", ["where", "mask", "sum"])
def test_what_is_thrown_away_is_no_finding(how: str) -> None:
    kinds, out = findings(how)
    assert kinds == []
    assert out.sum().item() == 28
    assert not out.isnan().any()


@pytest.mark.parametrize(
    "how",
    ["store", "where the wrong way", "times zero", "reduction", "maximum", "branch", "condition", "address", "print"],
)
def test_what_reaches_memory_a_branch_an_address_or_the_host_is_one(how: str) -> None:
    kinds, _ = findings(how)
    assert kinds == ["uninitialized"]


@triton.jit
def accumulate(x, total, seen, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.where(at < BLOCK // 2, tl.load(x + at), 0.0)
    tl.atomic_add(total, tl.sum(value))
    tl.store(seen + tl.program_id(0), tl.atomic_add(seen + 8, 1))


def test_running_again_leaves_memory_as_one_run_does(dev: sim.SimDevice) -> None:
    x = torch.empty(16, device="cuda")
    x[:8] = 1.0
    total, seen = torch.zeros(1, device="cuda"), torch.zeros(9, dtype=torch.int32, device="cuda")
    accumulate[(8,)](x, total, seen, 16)
    assert not dev.findings
    assert total.item() == 64
    assert seen.tolist() == [*range(8), 8]
    assert dev.launches[-1].written and len(dev.launches) == 1
    assert x[8:].isnan().all().item()


@triton.jit
def load_a_part(x, out, n, HOW: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if HOW == "mask":
        tl.store(out + at, value, mask=at < n)
    elif HOW == "where":
        tl.store(out, tl.sum(tl.where(at < n, value, 0.0)))
    elif HOW == "sum":
        tl.store(out, tl.sum(value))
    elif HOW == "whole store":
        tl.store(out + at, value)
    elif HOW == "sum with other":
        tl.store(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))


@pytest.mark.parametrize(
    ("how", "n", "kinds"),
    [
        ("mask", 9, []), ("where", 9, []), ("sum with other", 9, []), ("sum", 16, []),
        ("sum", 9, ["undefined_value"]), ("whole store", 9, ["undefined_value"]),
    ],
)  # fmt: skip
def test_inactive_lanes_of_a_masked_load_without_other_have_no_value(
    how: str, n: int, kinds: list[str], dev: sim.SimDevice
) -> None:
    x, out = torch.arange(16.0, device="cuda"), torch.zeros(16, device="cuda")
    load_a_part[(1,)](x, out, n, how, 16)
    assert [finding.kind for finding in dev.findings] == kinds
    assert all(finding.line for finding in dev.findings)
    total = sum(range(n))
    assert out.sum().item() == total  # it is zero here, whatever was tried
