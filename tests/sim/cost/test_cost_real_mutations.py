"""Kernels of many kinds, with something added to their text or to their counts: none of it makes one faster."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest
from test_cost_limits import Launch, more_of_everything

from drkernel import sim
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.gpu.device_journal import LaunchEntry as Launched
from drkernel.sim.gpu.pricing import pressure_of, profile_of_text
from drkernel.sim.spec import get_spec
from mutations import ADDED, write_mutated
from places import BENCHMARKS

KERNELS = BENCHMARKS / "extrapolation_kernels"
FAST = ("softmax", "persistent_matmul", "max_pool", "causal_attention")
NAMES = (
    *FAST, "row_sum", "column_sum", "layer_norm", "persistent_rms", "scan", "transpose", "gelu", "loss_sum", "matmul",
    "grouped_matmul", "split_k", "triangular", "convolution", "attention", "window_attention", "gather",
)  # fmt: skip
"""those that go by no data"""
SLACK = 1e-6
SAMPLED = 2e-3
"""what a program reads again is counted on some programs, others in another text: its share is off by some parts in a
thousand"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ModuleType]]:
    """The kernels as they are ("") and with each addition."""
    folder = tmp_path_factory.mktemp("mutated")
    sys.path[:0] = [str(folder), str(KERNELS.parent)]
    found = {"": importlib.import_module(KERNELS.name)}
    for number, added in enumerate(ADDED):
        write_mutated(KERNELS, folder / f"mutated_kernels_{number}", added)
        found[added] = importlib.import_module(f"mutated_kernels_{number}")
    yield found
    sys.path[:] = [place for place in sys.path if place not in (str(folder), str(KERNELS.parent))]


def launched(package: ModuleType, name: str) -> Launched:
    """What the device noted of a case's launch."""
    case = next(case for case in package.cases() if case.name == name)
    with sim.device("h100", checks="off", data_free=DataFree()) as device:
        device.engine.accounts.keep_journal = True
        device.reset_counters()
        case.run(*case.size)
        return [entry for entry in device.engine.accounts.entries or () if isinstance(entry, Launched)][-1]


def priced(entry: Launched) -> Launch:
    """The same as the cost model has it."""
    spec, resources = get_spec("h100"), entry.resources
    registers = pressure_of(entry.ttir, entry.num_warps * spec.warp_size).registers
    shared = resources.shared_bytes if resources else 0
    return Launch(spec, entry.stats, profile_of_text(entry.ttir), entry.num_warps, entry.num_stages, shared, registers)


def slow_unless(name: str) -> pytest.ParameterSet:
    return pytest.param(name, marks=() if name in FAST else pytest.mark.slow)


@pytest.mark.parametrize("name", [slow_unless(name) for name in NAMES if name != "loss_sum"])
def test_what_is_added_to_a_kernel_never_makes_it_faster(packages: dict[str, ModuleType], name: str) -> None:
    """All but ``loss_sum``, whose result is one number: the additions want room for 256."""
    plain = launched(packages[""], name)
    before = priced(plain).cost()
    assert before.roofline <= 1.0
    for added in ADDED:
        entry = launched(packages[added], name)
        assert len(entry.ttir) > len(plain.ttir), f"{added} did not change the kernel"
        assert priced(entry).cost().seconds >= before.seconds * (1 - SAMPLED), added


@pytest.mark.parametrize("name", [slow_unless(name) for name in NAMES])
def test_more_of_anything_never_makes_a_kernel_faster(packages: dict[str, ModuleType], name: str) -> None:
    """Random additions of 17 kinds to the counts of each kernel."""
    launch, rng = priced(launched(packages[""], name)), random.Random(name)
    before = launch.cost().seconds
    for _ in range(50):
        for what, more in more_of_everything(launch, rng).items():
            assert more.cost().seconds >= before * (1 - SLACK), what


@pytest.mark.parametrize("name", [slow_unless(name) for name in NAMES])
def test_programs_that_do_nothing_never_make_a_kernel_faster(packages: dict[str, ModuleType], name: str) -> None:
    launch = priced(launched(packages[""], name))
    before, stats = launch.cost().seconds, launch.stats
    working = stats.classes or ((float(stats.programs), stats.executed),)
    for times in (0.01, 0.5, 1, 7, 100):
        idle = max(1, int(stats.programs * times))
        more = replace(stats, programs=stats.programs + idle, classes=(*working, (float(idle), ())))
        assert replace(launch, stats=more).cost().seconds >= before * (1 - SLACK), times
