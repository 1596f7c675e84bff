"""Hostile calls of the device's operators between guard pages: nothing is read or written outside."""

import platform
import re
import subprocess

import pytest

from farm import PYTHON
from places import ROOT

GUARDS = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux", reason="guard pages are for Linux on x86-64"
)


def campaign(calls: int, seed: int) -> str:
    """What a campaign without findings prints; it fails for one with some."""
    command = [PYTHON, "benchmarks/fuzz_device.py", "--calls", str(calls), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0 and f"seed {seed}: {calls} calls" in done.stdout, done.stdout + done.stderr[-2000:]
    return done.stdout


@GUARDS
def test_a_slice_of_the_campaign_finds_nothing() -> None:
    (called,) = re.findall(r"(\d+) ok\n", campaign(400, 11))
    assert int(called) > 100, "too few calls reach their kernels to show anything"


@GUARDS
@pytest.mark.slow
def test_a_longer_slice_finds_nothing() -> None:
    campaign(20_000, 12)


OVERRUN = """
import ctypes, sys
import torch
sys.path.insert(0, "benchmarks")
from guard_pages import guard_storages
guards = guard_storages()
x = torch.ones(35)
assert guards.check() == []
ctypes.memset(x.data_ptr() + 4 * 35, 1, int(sys.argv[1]))
print(guards.check())
"""


@GUARDS
@pytest.mark.parametrize(("nbytes", "code"), [(1, 0), (200, -11)])
def test_guard_pages_see_a_byte_in_the_slack_and_stop_what_goes_further(nbytes: int, code: int) -> None:
    done = subprocess.run(
        [PYTHON, "-c", OVERRUN, str(nbytes)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code
    assert code or "wrote behind a storage of 140 bytes" in done.stdout
