"""What a device did, priced by somebody else: the journal crosses as text and gives the same time."""

import json

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.gpu.device_journal import MAX_ENTRIES, TOO_LONG, entries_of, modelled
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.spec import get_spec
from drkernel.sim.wire.commands import ProtocolError, Ref


def worked(seed: int = 0) -> DeviceEngine:
    engine = DeviceEngine(get_spec("h200"))
    engine.accounts.keep_journal = True
    torch.manual_seed(seed)
    x = Ref(engine.register(torch.rand(64, 256)).handle)
    engine.reset_counters()
    y = engine.op("mm.default", [x, Ref(engine.op("t.default", [x], {}).handle)], {})
    z = engine.op("sum.dim_IntList", [Ref(y.handle)], {"dim": [1]})
    engine.free(y.handle)
    engine.op("nonzero.default", [Ref(z.handle)], {})
    engine.download(Ref(z.handle))
    engine.query("flush")
    engine.query("synchronize")
    return engine


def test_another_process_models_the_same_time() -> None:
    engine = worked()
    assert modelled("h200", engine.accounts.journal()).profile == engine.profile()


@triton.jit
def halved(x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) / 2)


def test_launches_are_priced_in_order_when_their_times_are_asked_for(dev: sim.SimDevice) -> None:
    x = torch.ones(1 << 16, device="cuda")
    dev.reset_counters()
    for block in (64, 1024):
        halved[(x.numel() // block,)](x, BLOCK=block)
    recorded = dev.engine.counters.launches
    assert [launch.seconds for launch in recorded] == [0.0, 0.0]
    seconds = [row.seconds for row in dev.profile().rows if row.name == "halved"]
    assert [launch.constexprs["BLOCK"] for launch in recorded] == ["64", "1024"]
    assert 0 < recorded[1].seconds < recorded[0].seconds and sum(seconds) == sum(one.seconds for one in dev.launches)


def test_equal_calls_have_equal_journals_whatever_their_addresses() -> None:
    first, second = worked(0), worked(1)
    assert first.accounts.journal() == second.accounts.journal()
    assert modelled("h200", first.accounts.journal()) is modelled("h200", second.accounts.journal())


def test_a_call_behind_a_flush_takes_the_same_time_whatever_came_before() -> None:
    engine = DeviceEngine(get_spec("h100"), data_free=DataFree())
    x = Ref(engine.op("empty.memory_format", [[1 << 22]], {}).handle)
    seconds = []
    for _ in range(3):
        engine.query("flush")
        engine.free(engine.op("sum.default", [x], {}).handle)
        seconds.append(next(row.seconds for row in engine.profile().rows if row.name == "aten.sum"))
    assert seconds == pytest.approx([calls * seconds[0] for calls in (1, 2, 3)], rel=1e-12)


def test_a_call_with_too_many_commands_has_no_price() -> None:
    engine = DeviceEngine(get_spec("h200"))
    engine.accounts.keep_journal = True
    for _ in range(MAX_ENTRIES + 1):
        engine.accounts.host_work()
    assert engine.accounts.journal() == TOO_LONG
    assert modelled("h200", TOO_LONG).profile.unpriced == ("commands",)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data["entries"].append(["copy", "device to host", -5]),
        lambda data: data["entries"].append(["nap"]),
        lambda data: data["entries"].append(["op", "mm.default"]),
        lambda data: data["entries"].append(["launch", "k", 7, 4, 3, {}, None]),
        lambda data: data.pop("kernels"),
    ],
)
def test_a_malformed_journal_breaks_the_protocol(spoil) -> None:
    data = json.loads(worked().accounts.journal())
    spoil(data)
    with pytest.raises(ProtocolError):
        entries_of(json.dumps(data))
