"""Random kernels against torch in float64: fusion, buffers and loops in combinations that nobody chose."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from harness import executing
from random_kernels import HEADER, Program, generate
from ttir_executor.compiled import Checks, clear_cache
from ttir_executor.lower import jit
from ttir_executor.lower.plan import Arena

FAST, SLOW = range(24), range(24, 224)
LONG, MORE_LONG = range(4), range(4, 120)


def _load(programs: list[Program], folder: Path) -> ModuleType:
    path = folder / "generated_kernels.py"
    path.write_text(HEADER + "\n\n".join(p.source() for p in programs))
    spec = importlib.util.spec_from_file_location("generated_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _expected(program: Program, inputs: list[torch.Tensor], n: int, flag: int) -> list[torch.Tensor]:
    outputs = [torch.zeros(shape, dtype=torch.float64) for shape in program.outputs]
    names = {name: getattr(torch, name) for name in ("where", "exp", "cos", "sqrt", "abs", "maximum")}
    names |= {f"x{k}": x.double() for k, x in enumerate(inputs)} | {f"o{k}": o for k, o in enumerate(outputs)}
    names |= {"n": n, "flag": flag, "scratch": torch.zeros(1024, dtype=torch.float64)}
    names["number"] = lambda shape: torch.arange(int(torch.tensor(shape).prod())).reshape(shape)
    exec("\n".join(program.torch), names)
    return outputs


def _run(programs: list[Program], folder: Path, checks: Checks) -> list[str]:
    """What is wrong with the programs' results."""
    module, problems = _load(programs, folder), []
    for program in programs:
        inputs = [torch.randn(s, generator=torch.Generator().manual_seed(k)) for k, s in enumerate(program.inputs)]
        for n, flag in ((17, 2), (40, 0)):
            outputs = [torch.zeros(shape) for shape in program.outputs]
            with executing(checks) as log:
                getattr(module, program.name)[(1,)](*inputs, *outputs, torch.zeros(1024), n, flag)
            problems += [f"{program.name}: {f.message}" for f in log.findings]
            for k, (got, want) in enumerate(zip(outputs, _expected(program, inputs, n, flag), strict=True)):
                if not torch.allclose(got.double(), want, atol=3e-4):
                    problems.append(f"{program.name} n={n} flag={flag} output {k}: {(got - want).abs().max():.3g} off")
    return problems


CHECKS = {"plain": Checks(), "checked": Checks(uninitialized=True, race=True)}


@pytest.mark.parametrize("checks", CHECKS)
@pytest.mark.parametrize("tier", ["quick", "optimised"])
@pytest.mark.parametrize("turn", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 3))])
def test_random_kernels(tmp_path: Path, checks: str, tier: str, turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel in one of the four combinations; in all of them where there is time."""
    if tier == "optimised":
        monkeypatch.setattr(jit, "PROMOTE_AFTER", 0.0)
    clear_cache()
    first = 2 * (tier == "quick") + (checks == "plain")
    assert not _run([generate(seed) for seed in FAST[(first + turn) % 4 :: 4]], tmp_path, CHECKS[checks])


@pytest.mark.slow
def test_many_random_kernels(tmp_path: Path) -> None:
    assert not _run([generate(seed) for seed in SLOW], tmp_path, Checks())


def _bits(programs: list[Program], folder: Path) -> list[list[torch.Tensor]]:
    """The output bits of every program, native code built anew."""
    clear_cache()
    module, found = _load(programs, folder), []
    for program in programs:
        for n, flag in ((17, 2), (40, 0)):
            inputs = [torch.randn(s, generator=torch.Generator().manual_seed(k)) for k, s in enumerate(program.inputs)]
            outputs = [torch.zeros(shape) for shape in program.outputs]
            with executing():
                getattr(module, program.name)[(1,)](*inputs, *outputs, torch.zeros(1024), n, flag)
            found.append([output.view(torch.int32) for output in outputs])
    return found


def _keep_everything(arena: Arena, nbytes: int, now: int, last: int) -> int:
    """Memory of its own for every value."""
    arena.size += nbytes
    return arena.size - nbytes


def _reused_memory_changes_nothing(seeds: range, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [generate(seed, long_lived=True) for seed in seeds]
    assert not _run(programs, folder, Checks())
    reused = _bits(programs, folder)
    monkeypatch.setattr(Arena, "take", _keep_everything)
    for left, right in zip(reused, _bits(programs, folder), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))
    clear_cache()


def test_reused_memory_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _reused_memory_changes_nothing(LONG, tmp_path, monkeypatch)


@pytest.mark.slow
def test_reused_memory_changes_nothing_in_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _reused_memory_changes_nothing(MORE_LONG, tmp_path, monkeypatch)
