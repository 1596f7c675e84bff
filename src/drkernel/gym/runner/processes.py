"""Process trees as the zygote sees them: descent, memory use, and how to end all of them."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE_SECONDS = 5.0
_SOCKET_BYTES = 256 << 10
"""bytes of a full socket buffer: 208 KiB, and the kernel's own share"""


def children_of(pid: int) -> list[int]:
    """Return the direct children of every thread of a process; none when it is gone or the kernel does not tell."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    except OSError:
        return found
    return found


def tree_of(pid: int) -> list[int]:
    """Return a process and all its descendants, parents first."""
    tree = [pid]
    for member in tree:
        tree += children_of(member)
    return tree


def private_bytes(pid: int) -> int:
    """Return the memory of a process that it does not share with files, its page tables included, in bytes; 0 when it
    is gone.

    Memory that a process shares with its children (``mmap`` with MAP_SHARED) counts in full in each of them.
    """
    kib = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith((b"RssAnon:", b"RssShmem:", b"VmPTE:")):
                    kib += int(line.split()[1])
    except (OSError, ValueError):
        return 0
    return kib << 10


def job_bytes(pid: int) -> int:
    """Return :func:`private_bytes` of an untrusted process, plus the memory that the kernel may hold for its
    descriptors.

    The contents of a socket's buffer belong to no process, so every descriptor counts as a socket with a full buffer.
    """
    try:
        path = f"/proc/{pid}/fd"
        count = os.stat(path).st_size or len(os.listdir(path))  # Linux before 6.2 does not say how many there are
    except OSError:
        count = 0
    return private_bytes(pid) + count * _SOCKET_BYTES


class ProcessorTime:
    """The processor seconds of a job's processes together, from repeated looks at the living ones.

    The last figure seen of a process is kept after its end. What it used after that look is known to its parent once
    the parent has waited for it; the larger of the two sums counts.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], float] = {}
        self._gone = 0.0

    def look(self, pids: Iterable[int]) -> float:
        """Look at the processes that are there now; return the seconds so far."""
        now, waited_for = {}, 0.0
        for pid in pids:
            with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                user, system, children_user, children_system = (int(ticks) / _TICKS for ticks in fields[11:15])
                now[pid, fields[19].decode()] = user + system  # a pid may come back, a pid and its start do not
                waited_for += user + system + children_user + children_system
        self._gone += sum(spent for key, spent in self._seen.items() if key not in now)
        self._seen = now
        return max(self._gone + sum(now.values()), waited_for)


def address_space(pid: int) -> int:
    """Bytes of address space of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[0]) * _PAGE


def send(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal to one process; return whether it existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def kill_trees(roots: Iterable[int]) -> None:
    """Send SIGKILL to every root and all descendants.

    Orphans are not found here: they have become the zygote's own children, see :func:`kill_orphans`.
    """
    for root in roots:
        signal_tree(root, signal.SIGKILL)


def signal_tree(root: int, number: signal.Signals) -> None:
    """Send a signal to a process and all its descendants, repeatedly until nothing new has been forked meanwhile."""
    seen: set[int] = set()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        fresh = [pid for pid in tree_of(root) if pid not in seen]
        if not fresh:
            return
        for pid in fresh:
            send(pid, number)
        seen.update(fresh)


def kill_orphans(own: set[int]) -> int:
    """Kill every child of this process that it did not fork itself: a job's process whose parents are gone.

    This process must be a subreaper. Returns how many there were.
    """
    orphans = [pid for pid in children_of(os.getpid()) if pid not in own]
    kill_trees(orphans)
    return len(orphans)


def kill_user(uid: int) -> None:
    """Send SIGKILL to everything that runs under a user id. For root, on reserved user ids.

    ``kill(-1)`` visits all processes under the kernel's lock, and a process with the signal pending cannot fork any
    more, so nothing escapes, however it is nested.
    """
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
