"""Kernels on disk: the second run compiles nothing and gives the same, a changed kernel is compiled anew; damage and
foreign folders are survived."""

import json
import linecache
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import triton.language as tl
from llvmlite.binding import ModuleRef

from drkernel import digest
from drkernel.base import files
from drkernel.cli import main
from drkernel.sim import device
from drkernel.sim.host import triton_frontend
from drkernel.sim.host.triton_frontend import kernels_on_disk
from farm import PYTHON
from ttir_executor import kernel_cache
from ttir_executor.compiled import clear_cache
from ttir_executor.kernel_cache import active
from ttir_executor.lower import jit
from ttir_executor.lower.helpers import SYMBOLS, helpers

SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=-float("inf"))
    top = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * n + at, top / tl.sum(top, 0), mask=at < n)

x = torch.randn(16, 100, device="cuda")
out = torch.empty_like(x)
softmax[(16,)](x, out, 100, BLOCK=128)
torch.testing.assert_close(out.cpu(), x.cpu().softmax(1))
"""


@pytest.fixture
def sim_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable:
    """``drkernel sim`` on :data:`SCRIPT`, in this process, which forgets all that it has compiled: (exit code, output,
    errors)."""
    script = tmp_path / "softmax.py"
    script.write_text(SCRIPT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run() -> tuple[int, str, str]:
        clear_cache()
        monkeypatch.setattr(sys, "argv", ["drkernel", "sim", str(script), "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


def _refuse(*_: object) -> None:
    raise AssertionError("it ran")


def test_the_second_run_compiles_nothing_and_damage_is_survived(
    sim_command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "drkernel" / "kernels"
    with monkeypatch.context() as patch:
        patch.setattr(triton_frontend, "ttir_text", _refuse)
        assert sim_command()[0] == 1
    assert not list(folder.iterdir())
    assert sim_command()[0] == 0
    entries = {path: path.read_bytes() for path in folder.iterdir()}
    assert len(entries) == 2  # what the front end made, and native code
    with monkeypatch.context() as patch:
        patch.setattr(triton_frontend, "ttir_text", _refuse)
        patch.setattr(ModuleRef, "verify", _refuse)  # called before LLVM compiles
        code, report, errors = sim_command()
    assert code == 0, errors
    assert json.loads(report)["launches"][0]["kernel"] == "softmax"
    for path, content in entries.items():
        path.write_bytes(content[:-7] + b"damaged")
    with pytest.warns(UserWarning, match="damaged entry") as warned:
        assert sim_command()[0] == 0
    assert len(warned) == 2


TEXT = "define void @kernel(ptr %c, i64 %a, i64 %b) {\n  %s = add i64 %a, %b\n  store i64 %s, ptr %c\n  ret void\n}\n"


def _added(native: jit.Native) -> float:
    """What the code of ``TEXT`` makes of 3 and 4."""
    out = torch.zeros(1, dtype=torch.int64)
    native.call(out.data_ptr(), 3, 4)
    return out.item()


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests keep kernels where they say, not where the whole run may keep them."""
    monkeypatch.setattr(kernel_cache, "_active", [])
    jit.prepare()


def test_native_code_comes_back(tmp_path: Path) -> None:
    for expected in (0, 1):  # the second time there is an entry already
        with kernels_on_disk(tmp_path / "kernels"):
            assert len(list((tmp_path / "kernels").iterdir())) == expected
            native = jit.build(TEXT, "kernel", optimise=False)
        assert _added(native) == 7
    assert active() is None
    jit.build(TEXT.replace("add", "sub"), "kernel", optimise=False)  # nothing is kept outside of the block
    assert len(list((tmp_path / "kernels").iterdir())) == 1


def test_the_helpers_are_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kernels_on_disk(tmp_path / "kernels"):
        made = jit._engine(helpers(), 2)
        monkeypatch.setattr(ModuleRef, "verify", _refuse)
        again = jit._engine(helpers(), 2)
    assert all(engine.get_function_address(name) for engine in (made, again) for name in SYMBOLS)


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="others may write"), kernels_on_disk(folder):
        assert active() is None
    missing = tmp_path / "file"
    missing.write_text("")
    with kernels_on_disk(missing / "folder"):
        assert active() is None


def test_what_was_used_longest_ago_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 7 * 132)
    kept = files.DiskCache(tmp_path)
    for k in range(8):
        kept.put(b"x" * 100, str(k))
        os.utime(kept._path((str(k),)), (k, k))
    assert kept.get("1") is not None  # now it is the one used last
    kept.trim()
    assert [k for k in range(8) if kept.get(str(k))] == [1, 6, 7]


def test_an_entry_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    with kernels_on_disk(tmp_path / "kernels"):
        jit.build(TEXT.replace("add", "sub"), "kernel", optimise=False)
        [other] = (tmp_path / "kernels").iterdir()
        jit.build(TEXT, "kernel", optimise=False)
        [own] = set((tmp_path / "kernels").iterdir()) - {other}
        own.write_bytes(other.read_bytes())
        with pytest.warns(UserWarning, match="damaged entry"):
            native = jit.build(TEXT, "kernel", optimise=False)
        assert _added(native) == 7
        assert _added(jit.build(TEXT, "kernel", optimise=False)) == 7  # a good entry is in its place again


def test_two_tiers_are_two_entries(tmp_path: Path) -> None:
    with kernels_on_disk(tmp_path / "kernels"):
        for optimise in (False, True, False, True):
            jit.build(TEXT, "kernel", optimise=optimise)
    assert len(list((tmp_path / "kernels").iterdir())) == 2


KERNEL = """
import triton, triton.language as tl
import sizes_of_the_cached_kernel as sizes
HERE = tl.constexpr(10)
power = tl.exp2

@triton.jit
def fill(out):
    tl.store(out, power(HERE + sizes.THERE + 0.0))
"""


@pytest.mark.parametrize(
    "old, new, there, expected",
    [
        ("unused", "unused", 1, 2.0**11),
        ("HERE = tl.constexpr(10)", "HERE = tl.constexpr(4)", 1, 2.0**5),
        ("unused", "unused", 2, 2.0**12),
        ("tl.exp2", "tl.log2", 6, 4.0),
    ],
)
def test_a_changed_global_name_is_seen(
    old: str, new: str, there: int, expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's text and lines are the same every time; Triton's own hash sees the first of these changes alone."""

    def run(source: str, there: int) -> float:
        sizes = types.ModuleType("sizes_of_the_cached_kernel")
        sizes.THERE = tl.constexpr(there)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, sizes.__name__, sizes)
        path.write_text(source)
        linecache.checkcache()
        namespace = {"__name__": "cached_kernel"}
        exec(compile(source, str(path), "exec"), namespace)
        with kernels_on_disk(tmp_path / "kernels"), device("h100"):
            out = torch.zeros(1, device="cuda")
            namespace["fill"][(1,)](out)
            return out.item()

    path = tmp_path / "kernel.py"
    assert run(KERNEL, 1) == 2.0**11
    asked = len(list((tmp_path / "kernels").iterdir()))
    assert run(KERNEL.replace(old, new), there) == expected
    assert (len(list((tmp_path / "kernels").iterdir())) == asked) == (expected == 2.0**11)


def test_the_front_end_s_output_outlives_an_edit_of_a_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = {name: tmp_path / name for name in digest._ROOTS}
    for name, copy in roots.items():
        shutil.copytree(digest._ROOTS[name], copy, ignore=shutil.ignore_patterns("*.pyc"))
    monkeypatch.setattr(digest, "_ROOTS", roots)
    ours, executor = roots.values()

    def digest_now() -> str:
        digest.module_digest.cache_clear()
        return digest.module_digest("drkernel.sim.host.triton_frontend")

    first = digest_now()
    prices = sorted((ours / "sim" / "cost").glob("*.py"))
    for path in [*prices, executor / "lower" / "emit.py"]:
        path.write_text(path.read_text() + "\nEDITED = 1\n")
    assert prices and digest_now() == first
    path = executor / "kernel_cache.py"  # imported by the front end
    path.write_text(path.read_text() + "\nEDITED = 1\n")
    second = digest_now()
    path = ours / "sim" / "host" / "triton_frontend.py"
    path.write_text(path.read_text() + "\nEDITED = 1\n")
    assert len({first, second, digest_now()}) == 3
    digest.module_digest.cache_clear()


WRITER = """
import sys, warnings
from pathlib import Path
from drkernel.base import files
from ttir_executor.compiled import clear_cache
from drkernel.sim.host.triton_frontend import kernels_on_disk
warnings.simplefilter("error")
files.MOST_BYTES = 30000
folder = Path(sys.argv[1])
with kernels_on_disk(folder):
    kept = files.DiskCache(folder)
    for k in range(400):
        found = kept.get(str(k % 50))
        assert found in (None, b"%d" % (k % 50) * 1000)
        kept.put(b"%d" % (k % 50) * 1000, str(k % 50))
        if k % 20 == 0:
            kept.trim()
"""


def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "kernels")
    both = [subprocess.Popen([PYTHON, "-c", WRITER, folder], stderr=subprocess.PIPE) for _ in range(2)]
    assert [(process.communicate()[1], process.returncode) for process in both] == [(b"", 0)] * 2
    assert len(list(Path(folder).iterdir())) <= 50  # nothing half-written is left
