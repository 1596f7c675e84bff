"""What a build of PyTorch for CUDA has that a CPU build lacks, put there: nothing of it may be met while a GPU is
simulated. It would ask the driver, which ends or fails a process on a machine without a GPU.

The whole suite ran on such a build once (docs/gpu.md); what failed there is here."""

import ctypes
from pathlib import Path

import pytest
import torch

from drkernel import sim
from drkernel.sim import inductor
from drkernel.sim.host import library_calls
from drkernel.sim.host import tensor as host
from drkernel.sim.inductor import replaced_attributes
from drkernel.sim.spec import get_spec
from drkernel.sim.wire.commands import UnsupportedOp


def test_torchs_own_kernels_of_operators_are_not_a_users(monkeypatch):
    """A CUDA build has ``aten::bmm`` registered from Python: every batched product was handed to it, and failed."""
    monkeypatch.setattr(torch.library, "_impls", {*torch.library._impls, "aten/bmm/CUDA"})
    monkeypatch.setattr(library_calls, "_OF_TORCH", set())
    bmm = torch.ops.aten.bmm.default
    assert library_calls.registered_kernel(bmm) is not None, "of whoever registered it"
    monkeypatch.setattr(library_calls, "_OF_TORCH", {"aten/bmm/CUDA"})
    assert library_calls.registered_kernel(bmm) is None
    monkeypatch.setitem(library_calls._functions, "aten/bmm/CUDA", lambda *args: None)
    assert library_calls.registered_kernel(bmm) is not None, "registered over it while the device was there"


@pytest.mark.parametrize("there, replaced", [([], True), ([Path("/dev/nvidia0")], False)])
def test_a_guard_that_asks_the_driver_is_replaced_where_there_is_no_gpu(monkeypatch, there, replaced):
    """autograd asks it for a stream as soon as a tensor "on cuda" is recorded, and the process was aborted."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    table = (ctypes.c_void_p * (host.META_TYPE + 1)).in_dll(library, host.GUARDS)
    before, of_a_build = table[host.CUDA_TYPE], table[0]  # the CPU's stands for a CUDA build's
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(there))
    try:
        table[host.CUDA_TYPE] = of_a_build
        host.guard_nothing.__wrapped__()
        assert table[host.CUDA_TYPE] == (table[host.META_TYPE] if replaced else of_a_build)
    finally:
        table[host.CUDA_TYPE] = before


def test_private_functions_of_a_cuda_build_are_refused_like_missing_ones(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_hostMemoryStats", lambda: {"of": "the driver"}, raising=False)
    monkeypatch.setattr(torch._C, "_nccl_version", lambda: 22707, raising=False)
    with sim.device("h200"):
        with pytest.raises(UnsupportedOp, match="_cuda_hostMemoryStats"):
            torch.cuda.host_memory_stats()
        with pytest.raises(UnsupportedOp, match="_nccl_version"):
            torch.cuda.nccl.version()
        assert torch.cuda.memory_allocated() == 0
    assert torch._C._cuda_hostMemoryStats() == {"of": "the driver"} and torch._C._nccl_version() == 22707


def test_compilers_see_no_accelerator_whose_streams_a_graph_would_note(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    with replaced_attributes(inductor._cuda(get_spec("h200"))):  # what a compilation has on, without Inductor's import
        assert torch.accelerator.current_accelerator() is None and not torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
