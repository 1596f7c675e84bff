"""The memory limit of an evaluation: estimated before it starts, enforced while it runs.

The judge holds a task's weights, inputs and outputs twice, as declared and in fp64. A task for which that alone exceeds
the budget is refused before anything is allocated. Anything that the estimate misses hits the process's own limit, so
it becomes an error of that one evaluation instead of making the kernel kill some process.
"""

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from drkernel.task import TaskError

SHARE = 4
"""the default budget is this share of the machine's memory"""
NO_ROOM = ("can't allocate memory", "not enough memory", "MemoryError", "out of memory")
"""texts of a failed allocation"""


class TaskTooLarge(TaskError):
    """A task needs more memory than an evaluation may take; the message says how much, and what to do."""


def machine_bytes() -> int:
    """Return the memory, in bytes, available to this process: the machine's, or a control group's limit if smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(name).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return total


def default_budget() -> int:
    """Return the bytes that the judge may take for one evaluation by default."""
    return machine_bytes() // SHARE


@lru_cache(maxsize=512)
def needed_bytes(source: str) -> int:
    """Return a lower bound, in bytes, on judging against a reference; 0 if it cannot be determined without running
    it."""
    from drkernel.tasks.cost import judged_bytes
    from drkernel.tasks.reference import load_reference

    try:
        return judged_bytes(load_reference(source))
    except TaskError:
        return 0  # whatever is wrong with it comes out when it is loaded


def require_memory(source: str, budget: int) -> None:
    """Raise :class:`TaskTooLarge` when judging against a reference's ``source`` cannot fit ``budget`` bytes."""
    needed = needed_bytes(source)
    if needed > budget:
        raise TaskTooLarge(too_large(f"needs at least {shown(needed)} of memory to judge", budget))


def too_large(what: str, budget: int) -> str:
    """A sentence that tells the user what to do."""
    return (
        f"the task {what}, and the budget of one evaluation is {shown(budget)}. Take a smaller size profile, shrink "
        "the sizes in the reference, or raise the budget (--memory-gib)"
    )


def shown(count: int) -> str:
    """Bytes in a readable unit."""
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:.0f} MiB"


def is_no_room(error: BaseException) -> bool:
    """Whether an exception says that an allocation failed."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in NO_ROOM)


def bound_this_process(budget: int) -> None:
    """Limit this process to ``budget`` bytes beyond its current use; an allocation beyond that fails inside it."""
    held = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            held = int(line.split()[1]) << 10
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + budget
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def resident_bytes() -> int:
    """Bytes of memory that this process holds, shared ones included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def give_back(above: int) -> None:
    """Return freed memory to the system if this process holds more than ``above`` bytes.

    Otherwise the allocator keeps it: hundreds of megabytes after a large task, in every slot, until the next one.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
    if trim is not None and resident_bytes() > above:
        trim(0)


@contextmanager
def bounded(budget: int) -> Iterator[None]:
    """Let this process allocate at most ``budget`` bytes more during the block."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    bound_this_process(budget)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
