"""One zygote, and one nursery, for the judges of several slots: started once, held in memory once."""

from __future__ import annotations

import contextlib
import socket
import threading

from drkernel.gym.runner.launcher import Launcher, ZygoteError

JUDGES = 8
"""judges that share a zygote; it forks one job at a time, which takes milliseconds"""


class SharedZygote:
    """The zygote and nursery of several judges; owned by the pool. Started when the first judge asks for it, and again
    when it has died. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._launcher: Launcher | None = None
        self._closed = False
        self.started = 0
        """number of times it was started"""

    @property
    def launcher(self) -> Launcher | None:
        """The zygote, where one is alive."""
        launcher = self._launcher
        return launcher if launcher is not None and launcher.alive else None

    def join(self) -> tuple[socket.socket, int | None]:
        """A judge's socket to the zygote, and its process id. Raises :class:`ZygoteError`."""
        with self._lock:
            if self._closed:
                raise OSError("the pool is closed")
            if self._launcher is not None:
                with contextlib.suppress(ZygoteError):  # it has just died, or a while ago
                    return self._launcher.join(), self._launcher.pid
                self._launcher.close()
            self._launcher = Launcher()
            self.started += 1
            return self._launcher.join(), self._launcher.pid

    def close(self) -> None:
        """End it and all of its jobs, for good."""
        with self._lock:
            self._closed = True
            if self._launcher is not None:
                self._launcher.close()
                self._launcher = None
