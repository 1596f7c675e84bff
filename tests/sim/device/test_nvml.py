"""Libraries that ask NVML for a GPU before they touch ``torch.cuda`` find the simulated one."""

import ctypes

import pytest
import torch

from drkernel import sim


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def test_queries_are_answered_from_the_spec() -> None:
    with sim.device("a100") as device:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        count, handle = ctypes.c_uint(), ctypes.c_void_p()
        assert library.nvmlInit_v2() == 0 and library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
        assert count.value == 1 == torch.cuda._device_count_nvml()
        assert library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(0), ctypes.byref(handle)) == 0 and handle.value
        assert library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(1), ctypes.byref(handle)) != 0
        name, identity = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
        assert library.nvmlDeviceGetName(handle, name, ctypes.c_uint(96)) == 0
        assert name.value.decode() == torch.cuda.get_device_name() == device.spec.full_name
        assert library.nvmlDeviceGetUUID(handle, identity, ctypes.c_uint(96)) == 0
        assert library.nvmlDeviceGetHandleByUUID(identity.value, ctypes.byref(handle)) == 0
        assert library.nvmlDeviceGetHandleByUUID(b"GPU-of-another", ctypes.byref(handle)) != 0
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
        assert (major.value, minor.value) == (8, 0)
        x, memory = torch.empty(1 << 20, device="cuda"), _Memory()
        library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        assert memory.total == device.spec.hbm_bytes and memory.used == x.nbytes == memory.total - memory.free


def test_what_it_does_not_know_is_missing_by_name() -> None:
    with sim.device("h100"), pytest.raises(AttributeError, match="nvmlDeviceGetTemperature"):
        ctypes.CDLL("libnvidia-ml.so.1").nvmlDeviceGetTemperature  # noqa: B018


@pytest.mark.parametrize("gpu", [None, "mi300x"])
def test_there_is_none_without_an_nvidia_gpu(gpu: str | None) -> None:
    if gpu is None:
        with pytest.raises(OSError, match="libnvidia-ml"):
            ctypes.CDLL("libnvidia-ml.so.1")
        return
    with sim.device(gpu):
        with pytest.raises(OSError, match="libnvidia-ml"):
            ctypes.CDLL("libnvidia-ml.so.1")
        assert ctypes.CDLL(None).getpid() > 0  # other libraries load as ever
