"""Stops native code on request: a signal is noticed by Python only when a launch returns, which may take minutes."""

import os
import signal
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ttir_executor.lower.runtime import Ctx

_RUNNING: weakref.WeakSet[Any] = weakref.WeakSet()
"""launches under way; each has ``contexts``"""


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM)."""


@contextmanager
def under_way(launch: Any) -> Iterator[None]:
    """Within the block :func:`stop_running` stops ``launch``, however the block ends."""
    _RUNNING.add(launch)
    try:
        yield
    finally:
        _RUNNING.discard(launch)


def stop_running() -> None:
    """Let every launch under way run out of time."""
    for launch in list(_RUNNING):
        for context in launch.contexts:
            context[Ctx.DEADLINE] = 0


@contextmanager
def interruptible() -> Iterator[None]:
    """In the main thread: SIGINT and SIGTERM stop the launch that is running, then raise ``KeyboardInterrupt`` or
    :class:`Terminated`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while signals := os.read(reader, 64):
            if {signal.SIGINT, signal.SIGTERM} & set(signals):
                stop_running()
        os.close(reader)

    def terminate(number: int, frame: Any) -> None:
        raise Terminated

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    before_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.set_wakeup_fd(before_fd)
        os.close(writer)
        watcher.join()
