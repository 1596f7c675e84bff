"""What reaches the outputs of a call: storages followed through launches and operators, copies told from work."""

from collections.abc import Callable, Iterator

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.gpu.dataflow import Slice
from drkernel.sim.script import SimDevice

SIZE = 300


@triton.jit
def copy_kernel(x, o, n, B: tl.constexpr):
    k = tl.arange(0, B)
    tl.store(o + k, tl.load(x + k, k < n), k < n)


@triton.jit
def copy_and_junk_kernel(x, o, junk, n, B: tl.constexpr):
    k = tl.arange(0, B)
    v = tl.load(x + k, k < n)
    tl.store(o + k, v, k < n)
    tl.store(junk + k, v * 2, k < n)


@triton.jit
def double_kernel(x, o, n, B: tl.constexpr):
    k = tl.arange(0, B)
    tl.store(o + k, tl.load(x + k, k < n) * 2, k < n)


@triton.jit
def noise_kernel(x, o, n, B: tl.constexpr):
    k = tl.arange(0, B)
    tl.store(o + k, tl.load(x + k, k < n) * 1.000001, k < n)


@pytest.fixture
def device() -> Iterator[SimDevice]:
    with sim.device("h200") as device:
        yield device


def launch(kernel: triton.JITFunction, *tensors: torch.Tensor) -> torch.Tensor:
    """Run a kernel; returns its second tensor."""
    kernel[(1,)](*tensors, SIZE, B=512)
    return tensors[1]


def fresh() -> torch.Tensor:
    return torch.empty(SIZE, device="cuda")


def own(x: torch.Tensor) -> torch.Tensor:
    return launch(double_kernel, x, fresh())


def copy(x: torch.Tensor) -> torch.Tensor:
    return launch(copy_kernel, x, fresh())


def copy_of_library(x: torch.Tensor) -> torch.Tensor:
    return copy(torch.sin(x))


def copy_of_own(x: torch.Tensor) -> torch.Tensor:
    return copy(own(x))


def copy_of_clone(x: torch.Tensor) -> torch.Tensor:
    return copy(x.clone())


def copy_beside_a_read(x: torch.Tensor) -> torch.Tensor:
    return copy(x) if float(torch.ones(1).cuda()) < 1e9 else x


def copy_after_a_look(x: torch.Tensor) -> torch.Tensor:
    return copy(x) if float(torch.sin(x)[0]) < 1e9 else x


def library_of_a_copy(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(copy(x))


def copy_beside_junk(x: torch.Tensor) -> torch.Tensor:
    return launch(copy_and_junk_kernel, torch.sin(x), fresh(), fresh())


def noise_on_library(x: torch.Tensor) -> torch.Tensor:
    return launch(noise_kernel, torch.sin(x), fresh())


def cast_of_library(x: torch.Tensor) -> torch.Tensor:
    return launch(copy_kernel, torch.sin(x), torch.empty(SIZE, dtype=torch.float16, device="cuda"))


def unused(x: torch.Tensor) -> torch.Tensor:
    own(x)
    return torch.sin(x)


def overwritten(x: torch.Tensor) -> torch.Tensor:
    return own(x).copy_(torch.sin(x))


def overwritten_by_out(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x, out=own(x))


def half_overwritten(x: torch.Tensor) -> torch.Tensor:
    out = own(x)
    out[:100] = torch.sin(x)[:100]
    return out


def in_place_after(x: torch.Tensor) -> torch.Tensor:
    return own(x).add_(1.0)


def through_a_view(x: torch.Tensor) -> torch.Tensor:
    return own(x).view(3, 100).t()


def into_zeros(x: torch.Tensor) -> torch.Tensor:
    return launch(double_kernel, x, torch.zeros(SIZE, device="cuda"))


def seen_by_the_host(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) if float(own(x)[0]) < 1e9 else x


def memory_used_again(x: torch.Tensor) -> torch.Tensor:
    """The address of the kernel's output is likely to be that of the result."""
    own(x)
    return torch.sin(x)


CASES: dict[Callable, dict] = {
    own: {"reaches": [True], "copied": [False]},
    copy: {"reaches": [True], "copied": [True], "copied_library": [False]},
    copy_of_library: {"copied_library": [True], "operators": {"aten.sin": 1}, "passed_on": "exact"},
    copy_of_own: {"reaches": [True, True], "copied": [False, True], "copied_library": [False, False]},
    copy_of_clone: {"copied": [True], "copied_library": [False], "operators": {}, "passed_on": None},
    copy_beside_a_read: {"copied": [True], "copied_library": [False], "operators": {}, "uploads": False},
    copy_after_a_look: {"copied": [True], "operators": {"aten.sin": 1}},
    library_of_a_copy: {"copied": [True], "operators": {"aten.sin": 1}},
    copy_beside_junk: {"copied": [True], "copied_library": [True], "passed_on": "exact"},
    noise_on_library: {"copied": [False], "passed_on": "near"},
    cast_of_library: {"copied_library": [True], "passed_on": "exact"},
    unused: {"reaches": [False], "operators": {"aten.sin": 1}},
    overwritten: {"reaches": [False]},
    overwritten_by_out: {"reaches": [False]},
    half_overwritten: {"reaches": [True]},
    in_place_after: {"reaches": [True], "operators": {"aten.add_": 1}},
    through_a_view: {"reaches": [True], "operators": {}},
    into_zeros: {"reaches": [True], "operators": {}},
    seen_by_the_host: {"reaches": [True], "copied": [False]},
    memory_used_again: {"reaches": [False]},
}


@pytest.mark.parametrize("forward", CASES, ids=lambda forward: forward.__name__)
def test_what_reaches_the_output(device: SimDevice, forward: Callable) -> None:
    x = torch.randn(SIZE, device="cuda")
    device.engine.reset_counters()
    output = forward(x)
    found: Slice = device.engine.flow.slice([device.engine.tensor(output._handle)])
    assert {name: getattr(found, name) for name in CASES[forward]} == CASES[forward]


def test_an_upload_that_is_copied(device: SimDevice) -> None:
    device.engine.reset_counters()
    output = copy(torch.randn(SIZE).cuda())
    found = device.engine.flow.slice([device.engine.tensor(output._handle)])
    assert found.uploads and found.copied_library == [True]


def test_what_reaches_numbers_alone(device: SimDevice) -> None:
    device.engine.reset_counters()
    float(torch.sin(copy(torch.randn(SIZE).cuda())).sum())
    found = device.engine.flow.slice([])
    assert found.uploads and found.reaches == [True] and found.operators == {"aten.sin": 1, "aten.sum": 1}
