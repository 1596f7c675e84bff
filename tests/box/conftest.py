"""Sessions for the gym's tests: one warm zygote for all of them."""

import os

import psutil
import pytest

from drkernel.gym.request import EvalSettings
from drkernel.gym.runner.launcher import JobTerms
from drkernel.gym.sandbox.layers import RunnerLimits
from drkernel.gym.session.cuda import CudaSession
from drkernel.gym.session.simulated import SimulatedSession
from gym_harness import SETTINGS, Gym
from simulated_card import CardFactory


@pytest.fixture(scope="session")
def gym():
    gym = Gym()
    yield gym
    gym.factory.close()


@pytest.fixture(scope="session")
def cards():
    """Sessions on a simulated card that is cuda:0, with a zygote of their own."""
    factory = CardFactory()
    yield factory
    factory.close()


@pytest.fixture(scope="session")
def open_session(gym):
    """``with open_session() as session``."""

    def open_(settings: EvalSettings = SETTINGS) -> SimulatedSession:
        return gym.factory.open(settings)

    return open_


@pytest.fixture(scope="session")
def open_on(gym):
    """``with open_on("cpu") as session``: a runner that holds the tensors, of any limits; or on any device."""
    usual = RunnerLimits(memory_bytes=1 << 30)

    def open_(device: str, limits: RunnerLimits = usual, deadline_s: float = 60.0) -> SimulatedSession | CudaSession:
        if device != "cpu":
            return gym.factory.open(SETTINGS.model_copy(update={"device": device}))
        launcher = gym.factory._alive()
        settings = EvalSettings(memory_bytes=1 << 30, deadline_s=deadline_s)
        return CudaSession(launcher, settings, launcher.spawn(JobTerms("cpu", limits, 0)))

    return open_


@pytest.fixture
def nothing_leaks(gym):
    """Around a test: no process, descriptor or scratch of it stays, and the next job is unaffected."""
    gym.settle()
    zygote = psutil.Process(gym.factory._alive().pid)
    before = (zygote.num_fds(), psutil.Process().num_fds())
    yield
    assert gym.is_healthy()
    after = (zygote.num_fds(), psutil.Process().num_fds())
    assert after == before, "file descriptors leaked"
    assert not os.listdir(gym.factory._launcher._folder)[1:], (
        "scratch was left (the zygote's log is the one file there)"
    )
