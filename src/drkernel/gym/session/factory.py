"""The session factory, which owns the zygote and keeps a runner ready for the next candidate."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import torch

from drkernel.config import ConfigError
from drkernel.gym.device import Device, parse_device, seen_alone
from drkernel.gym.languages import LANGUAGES
from drkernel.gym.request import EvalSettings
from drkernel.gym.runner.launcher import JobHandle, JobTerms, Launcher, ZygoteError
from drkernel.gym.sandbox.layers import RunnerLimits
from drkernel.gym.session.base import JobSession
from drkernel.gym.session.cuda import CudaSession
from drkernel.gym.session.protocol import SessionError
from drkernel.gym.session.simulated import SimulatedSession
from drkernel.verdict import CandidateError

S = TypeVar("S", bound=JobSession)


class SessionFactory:
    """Opens sessions; owns the zygote and replaces a dead one, unless it is given ``launcher``. Thread-safe, a context
    manager.

    ``spares``: runners forked ahead of the next :meth:`open`, so that the fork is not waited for. They know nothing of
    the candidate to come. ``without``: sandbox layers to leave out.
    """

    def __init__(self, *, spares: int = 1, without: Iterable[str] = (), launcher: Launcher | None = None):
        self._spares = spares
        self._given = launcher
        self._without = frozenset(without)
        self._lock = threading.Lock()
        self._launcher: Launcher | None = None
        self._ready: deque[JobHandle] = deque()
        self._started = 0
        self._opened = 0
        self._closed = False

    def warm(self) -> SessionFactory:
        """Start the zygote now (about three seconds) rather than at the first session."""
        self._alive().wait_ready()
        return self

    def open(self, settings: EvalSettings) -> SimulatedSession | CudaSession:
        """A fresh runner on the settings' device.

        Raises :class:`DeviceMissing` when this machine has no such device, and :class:`SessionError` of kind
        ``infra_error`` when the machinery fails.
        """
        device = require_device(settings.device)
        if device.spec is not None:
            memory = min(device.spec.hbm_bytes, settings.memory_bytes)
            return self._open(settings, JobTerms(device.name, _limits(settings), memory), SimulatedSession)
        limits = _limits(settings)
        # a candidate, which is not known yet, may run its language's compilers
        cpu_s = limits.cpu_s + int(2 * max(language.compile_s for language in LANGUAGES.values()))
        limits = replace(limits, allow_exec=True, processes=512, open_files=4096, cpu_s=cpu_s)
        return self._open(settings, JobTerms(device.name, limits, 0, visible=_visible(device)), CudaSession)

    def _open(self, settings: EvalSettings, terms: JobTerms, kind: type[S]) -> S:
        launcher = self._alive()
        try:
            session = kind(launcher, settings, self._take(launcher, terms) or launcher.spawn(terms))
        except ZygoteError as error:
            raise _infra(str(error)) from error
        self._opened += 1
        if kind is CudaSession:  # a spare one would start on the card while this one is timed
            return session
        with contextlib.suppress(ZygoteError):  # the next to open will hear of it
            self._stock(launcher, terms)
        return session

    def _take(self, launcher: Launcher, terms: JobTerms) -> JobHandle | None:
        """A waiting job on these terms; one on other terms is ended to make room."""
        while True:
            with self._lock:
                if not self._ready:
                    return None
                job = self._ready.popleft()
            if job.usable and job.terms == terms:
                return job
            launcher.kill(job)

    def _stock(self, launcher: Launcher, terms: JobTerms) -> None:
        """Fork runners for the next candidates while this one is being judged."""
        for _ in range(self._spares - len(self._ready)):
            job = launcher.spawn(terms)
            with self._lock:
                self._ready.append(job)

    def _alive(self) -> Launcher:
        with self._lock:
            if self._closed:
                raise _infra("the session factory is closed")
            if self._given is not None:
                if not self._given.alive:
                    raise _infra(f"the zygote of several judges died\n{self._given.log()}")
                self._launcher = self._given
            elif self._launcher is None or not self._launcher.alive:
                self._put_away()
                self._launcher = Launcher(without=self._without)
                self._started += 1
            return self._launcher

    def _put_away(self) -> None:
        """End the zygote and the jobs kept ready."""
        if self._launcher is not None:
            while self._ready:
                self._launcher.kill(self._ready.popleft())
            self._launcher.close()
            self._launcher = None

    def health(self) -> dict[str, Any]:
        """Zygotes started, sessions opened, jobs not yet gone, runners standing ready, missing layers."""
        launcher = self._launcher
        return {
            "zygote_alive": launcher is not None and launcher.alive,
            "zygote_pid": None if launcher is None else launcher.pid,
            "nursery_pid": None if launcher is None else launcher.nursery,
            "zygotes_started": self._started,
            "sessions_opened": self._opened,
            "jobs": 0 if launcher is None else launcher.jobs,
            "spares": len(self._ready),
            "missing_layers": {} if launcher is None else launcher.missing,
        }

    def close(self) -> None:
        """End every session and the zygote; nothing is left behind."""
        with self._lock:
            self._closed = True
            self._put_away()

    def __enter__(self) -> SessionFactory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DeviceMissing(LookupError):
    """The request names a device that does not exist, or that this machine does not have."""


def require_device(name: str) -> Device:
    """Return the device of that name if it is here. Raises :class:`DeviceMissing`, which lists what there is."""
    try:
        device = parse_device(name)
    except ConfigError as error:
        raise DeviceMissing(str(error)) from error
    if device.kind == "cpu":
        raise DeviceMissing(f"no candidate is judged on {name!r}; use sim:GPU, or cuda:N")
    if device.kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(name.partition(":")[2]) >= count:
            raise DeviceMissing(f"there is no {name} on this machine, which has {count} CUDA devices; use sim:GPU")
    return device


def _visible(device: Device) -> dict[str, str]:
    try:
        return seen_alone(device, os.environ)
    except ConfigError as error:
        raise DeviceMissing(str(error)) from error


def _limits(settings: EvalSettings) -> RunnerLimits:
    return RunnerLimits(memory_bytes=settings.memory_bytes, cpu_s=int(settings.deadline_s * 2) + 10)


def _infra(message: str) -> SessionError:
    return SessionError("infra_error", CandidateError(type="InfraError", message=message))
