"""A device in the process; kernels that these tests compile are kept between tests and runs."""

import pytest

from drkernel import sim
from drkernel.sim.host.triton_frontend import kernels_on_disk


@pytest.fixture(scope="session", autouse=True)
def kept_kernels():
    with kernels_on_disk():
        yield


@pytest.fixture
def dev():
    with sim.device("h100") as device:
        yield device
