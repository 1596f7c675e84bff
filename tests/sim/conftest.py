"""Kernels that these tests compile are kept between tests and runs."""

import pytest

from drkernel.sim.host.triton_frontend import kernels_on_disk


@pytest.fixture(scope="session", autouse=True)
def kept_kernels():
    with kernels_on_disk():
        yield
