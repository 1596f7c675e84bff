"""No modelled launch is faster than its card, and nothing added makes one faster: over thousands of random counts."""

import math
import random
from dataclasses import dataclass, replace

import pytest

from drkernel.sim.cost.kernel_profile import BlockProfile, Dot, KernelProfile, Load
from drkernel.sim.cost.launch_time import launch_cost
from drkernel.sim.cost.layouts import Tile
from drkernel.sim.cost.pressure import BlockPressure
from drkernel.sim.cost.records import CostEstimate
from drkernel.sim.cost.roofline import L2State
from drkernel.sim.spec import GPUSpec, get_spec, known_gpus
from sweeps import shares
from ttir_executor.results import LaunchStats

CARDS = tuple(known_gpus())
TILES = (None, Tile((32, 64)), Tile((64, 128), side=1, product=True), Tile((16, 64), beside=4, loads=True, again=4.0))
UNITS = ("fp32", "int", "sfu", "fp64", "bf16")


@dataclass(frozen=True)
class Launch:
    """Everything that the model knows of a launch."""

    spec: GPUSpec
    stats: LaunchStats
    profile: KernelProfile
    warps: int
    stages: int
    shared_bytes: int
    registers: int

    def cost(self) -> CostEstimate:
        options = {"num_stages": self.stages, "shared_bytes": self.shared_bytes, "registers": self.registers}
        return launch_cost(self.stats, self.profile, self.warps, self.spec, L2State(self.spec), **options)


def random_launch(rng: random.Random) -> Launch:
    spec = get_spec(rng.choice(CARDS))
    programs = int(2 ** rng.uniform(0, 20))
    blocks, pressure, executed = [], [], []
    flops: dict[str, float] = {}
    for index in range(rng.randint(1, 3)):
        count = programs * 2 ** rng.uniform(0, 8)
        lanes = tuple(
            (rng.choice(UNITS), 2 ** rng.randint(0, 14), rng.uniform(0.5, 40), rng.choice(TILES))
            for _ in range(rng.randint(0, 4))
        )
        sides = (rng.choice((16, 32, 64, 128)), rng.choice((16, 64, 256)))
        unit = rng.choice(("tensor_bf16", "tensor_fp64", "fp32_dot"))
        dots = (Dot(unit, 2 ** rng.uniform(10, 22), sides[0], math.prod(sides)),) if rng.random() < 0.3 else ()
        levels = tuple(2 ** rng.uniform(2, 18) for _ in range(rng.randint(0, 3)))
        arrays = rng.choice(((), (0,), (0, 0), (0, 1, 1, 1)))
        loads = tuple(
            Load(10 * index + k, 2 ** rng.uniform(5, 18), array, level, levels[level] / 4, rng.choice((1.0, 4.0, 8.0)),
                 exposed=rng.random() < 0.3)
            for k, array in enumerate(arrays) for level in range(min(1, len(levels)))
        )  # fmt: skip
        window = {"serial": rng.random() < 0.3, "loads": loads, "around": rng.randint(-1, index - 1),
                  "widest": 2 ** rng.randint(0, 14)}  # fmt: skip
        pipelined = rng.random() < 0.3
        blocks.append(BlockProfile(lanes, levels, rng.randint(0, 3), rng.uniform(0, 90), dots, pipelined, **window))
        held = 2 ** rng.uniform(0, 19)
        tile = rng.uniform(1.0, held) if dots else 0.0
        loads = [2 ** rng.uniform(0, 20) for _ in range(rng.randint(0, 2))]
        pressure.append(BlockPressure(held, 2 ** rng.uniform(0, 20), tile, sum(loads), max(loads, default=0.0)))
        executed.append((index, count))
        for unit, numel, per, _ in lanes:
            if unit not in ("int", "sfu"):
                flops[unit] = flops.get(unit, 0.0) + numel * per * count
        for dot in dots:
            flops[dot.unit] = flops.get(dot.unit, 0.0) + dot.operations * count
    footprint = tuple(
        (base, 2 ** rng.uniform(5, 32) * rng.randint(0, 1), 2 ** rng.uniform(5, 32) * rng.randint(0, 1))
        for base in range(rng.randint(1, 4))
    )
    passes = rng.choice([1.0, 1.0, 2.0, 5.0])
    read, written = (sum(entry[k] for entry in footprint) for k in (1, 2))
    atomics = int(2 ** rng.uniform(0, 26)) if rng.random() < 0.3 else 0
    stats = LaunchStats(
        programs=programs,
        load_sectors=read / 32 * passes * rng.choice([1.0, 1.0, 3.0]),
        store_sectors=written / 32,
        flops=flops,
        atomics=atomics,
        max_same_address_atomics=rng.randint(0, min(atomics, 1000)),
        footprint=footprint,
        executed=tuple(executed),
        own_passes=passes,
    )
    warps = 2 ** rng.randint(0, 4 if spec.vendor == "amd" else 5)
    return Launch(spec, stats, KernelProfile(tuple(blocks), tuple(pressure)), warps, rng.randint(1, 5),
                  rng.choice([0, 0, 20_000, 60_000]), rng.choice([0, 32, 64, 128, 255]))  # fmt: skip


@pytest.fixture(scope="module")
def launches() -> list[Launch]:
    rng = random.Random(7)
    return [random_launch(rng) for _ in range(2000)]


def test_nothing_is_faster_than_the_card(launches: list[Launch]) -> None:
    """Distinct bytes over the data sheet's bandwidth and operations over its peaks bound every time from below."""
    for launch in launches:
        cost, stats, spec = launch.cost(), launch.stats, launch.spec
        moved = sum(read + written for _, read, written in stats.footprint)
        assert cost.seconds >= moved / spec.hbm_bandwidth + spec.kernel_min
        peaks = {**spec.peak, "fp32_dot": spec.peak["fp32"]}
        assert cost.seconds >= max([0.0, *(count / peaks[unit] for unit, count in stats.flops.items())])
        assert 0.0 <= cost.roofline <= 1.0
        assert cost.dram_bytes >= moved * (1 - 1e-9)


def with_block(launch: Launch, **changes: object) -> Launch:
    blocks = (replace(launch.profile.blocks[0], **changes), *launch.profile.blocks[1:])
    return replace(launch, profile=replace(launch.profile, blocks=blocks))


def with_stats(launch: Launch, **changes: object) -> Launch:
    return replace(launch, stats=replace(launch.stats, **changes))


def more_of_everything(launch: Launch, rng: random.Random) -> dict[str, Launch]:
    """The launch with one thing more each."""
    stats, block = launch.stats, launch.profile.blocks[0]
    factor = rng.uniform(1.01, 4.0)
    held = tuple(replace(p, held=p.held * factor) for p in launch.profile.pressure)
    multiplying = tuple(replace(p, tile=p.tile * factor) for p in launch.profile.pressure)
    values = tuple(replace(p, values=p.values * factor) for p in launch.profile.pressure)
    forward = tuple(replace(p, forward=p.forward * factor, widest=p.widest * factor) for p in launch.profile.pressure)
    entered = tuple((index, count * factor) for index, count in stats.executed)
    return {
        "sectors": with_stats(launch, load_sectors=stats.load_sectors * factor),
        "passes over the same data": with_stats(
            launch, load_sectors=stats.load_sectors * factor, own_passes=stats.own_passes * factor
        ),
        "stored sectors": with_stats(launch, store_sectors=stats.store_sectors * factor),
        "distinct bytes, each as often as before": with_stats(
            launch,
            load_sectors=stats.load_sectors * factor,
            footprint=tuple((base, read * factor, written * factor) for base, read, written in stats.footprint),
        ),
        "another storage": with_stats(launch, footprint=(*stats.footprint, (99, 1e7, 1e7))),
        "updates": with_stats(launch, atomics=int(stats.atomics * factor) + 10),
        "updates of one address": with_stats(
            launch, atomics=stats.atomics + 10, max_same_address_atomics=stats.max_same_address_atomics + 10
        ),
        "entries": with_stats(launch, executed=entered),
        "instructions": with_block(launch, lanes=(*block.lanes, (rng.choice(UNITS), 64, 3.0, None))),
        "loads beside": with_block(launch, levels=(*[n * factor for n in block.levels[:1]], *block.levels[1:])),
        "a dependent load": with_block(launch, levels=(*block.levels, 4.0)),
        "reductions": with_block(launch, reductions=block.reductions + 1),
        "dependent instructions": with_block(launch, depth=block.depth * factor),
        "held values": replace(launch, profile=replace(launch.profile, pressure=held)),
        "a needless product": replace(launch, profile=replace(launch.profile, pressure=multiplying)),
        "values": replace(launch, profile=replace(launch.profile, pressure=values)),
        "loads brought forward": replace(launch, profile=replace(launch.profile, pressure=forward)),
        "shared memory": replace(launch, shared_bytes=launch.shared_bytes + 30_000),
        "registers": replace(launch, registers=min(255, launch.registers + 60)),
    }


@pytest.mark.parametrize("places", shares(range(1200), "more_is_never_faster"))
def test_more_is_never_faster(launches: list[Launch], places: list[int]) -> None:
    for place in places:
        launch, rng = launches[place], random.Random(place)
        before = launch.cost().seconds
        for what, more in more_of_everything(launch, rng).items():
            assert more.cost().seconds >= before * (1 - 1e-9), (what, launch)


def test_what_never_runs_does_not_count(launches: list[Launch]) -> None:
    for launch in launches[:300]:
        dead = BlockProfile(
            (("fp32", 4096, 9.0, None),), (1e6, 1e6), 3, 40.0, (Dot("tensor_bf16", 1e9, 64, 4096),), True
        )
        profile = KernelProfile((*launch.profile.blocks, dead), (*launch.profile.pressure, BlockPressure()))
        assert replace(launch, profile=profile).cost() == launch.cost()


def test_the_same_launch_takes_the_same_time(launches: list[Launch]) -> None:
    assert [launch.cost() for launch in launches[:200]] == [launch.cost() for launch in launches[:200]]
