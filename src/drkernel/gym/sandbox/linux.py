"""The few Linux calls that Python's ``os`` lacks, by ctypes: namespaces, mounts, prctl, capabilities, raw system calls.

Every function raises ``OSError`` with the call's name on failure. Importable everywhere; callable on Linux only.

Removing what an untrusted process has left in its folder, whatever it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import platform
import secrets
import shutil
import signal
import struct
import sys
from collections.abc import Sequence
from typing import Any

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000
_CLONE_PARENT = 0x8000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_CAPBSET_DROP = 1, 4, 8, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, PR_CAP_AMBIENT_CLEAR_ALL = 47, 2, 4

CAP_DAC_READ_SEARCH = 2
_MADV_COLLAPSE = 25
_HUGE_PAGE = 2 << 20
_CAPABILITY_VERSION_3 = 0x2008_0522

_libc = ctypes.CDLL(None, use_errno=True)

_NUMBERS = {
    "x86_64": {"clone": 56, "capset": 126, "close_range": 436, "seccomp": 317, "capget": 125},
    "aarch64": {"clone": 220, "capset": 91, "close_range": 436, "seccomp": 277, "capget": 90},
}


def machine() -> str:
    """``"x86_64"`` or ``"aarch64"``; raises ``OSError`` on another processor, whose call numbers are not known here."""
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if name not in _NUMBERS:
        raise OSError(f"system call numbers of {name} are not known; x86_64 and aarch64 are")
    return name


def number(name: str) -> int:
    """The number of one system call on this machine."""
    return _NUMBERS[machine()][name]


def syscall(what: str, nr: int, *args: int | bytes | ctypes.Array[Any] | ctypes._Pointer[Any] | None) -> int:
    """One raw system call; returns its result (``what`` names it in errors)."""
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result: int = _libc.syscall(ctypes.c_long(nr), *converted)
    if result < 0:
        raise _error(what)
    return result


def _error(what: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")


def prctl(option: int, *args: int) -> int:
    """``prctl(2)``."""
    padded = [ctypes.c_ulong(a) for a in (*args, 0, 0, 0, 0)[:4]]
    result: int = _libc.prctl(ctypes.c_int(option), *padded)
    if result < 0:
        raise _error(f"prctl({option})")
    return result


_BOUND = f"""
import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it, and would hand that on
ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, int(sys.argv[2]), 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[3], sys.argv[3:])
"""


def bound(command: Sequence[str]) -> list[str]:
    """``command`` as one that gets SIGTERM when the thread that starts it ends, whatever ended it: ``kill -9`` of a
    trainer leaves no server behind."""
    return [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), str(int(signal.SIGTERM)), *command]


def fork_sibling() -> int:
    """``os.fork`` whose child is a child of this process's parent, which alone is told of its end.

    For a process of one thread: handlers of ``pthread_atfork`` are not run.
    """
    python = ctypes.PyDLL(None, use_errno=True)  # as in os.fork, no other thread of Python's may run meanwhile
    python.PyOS_BeforeFork()
    pid: int = python.syscall(*map(ctypes.c_long, (number("clone"), _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)))
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise _error("clone")
    return pid


def unshare(flags: int) -> None:
    """``unshare(2)``."""
    if _libc.unshare(ctypes.c_int(flags)) != 0:
        raise _error(f"unshare({flags:#x})")


def setns(fd: int, flags: int) -> None:
    """``setns(2)``."""
    if _libc.setns(ctypes.c_int(fd), ctypes.c_int(flags)) != 0:
        raise _error("setns")


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """``mount(2)``."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    if _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]) != 0:
        raise _error(f"mount({target})")


def umount(target: str) -> None:
    """``umount2(2)``, detaching: what is still open there lives on unseen."""
    if _libc.umount2(os.fsencode(target), ctypes.c_int(2)) != 0:
        raise _error(f"umount({target})")


def close_from(first: int) -> None:
    """Close every file descriptor from ``first`` up."""
    try:
        syscall("close_range", number("close_range"), first, 0xFFFF_FFFF, 0)
    except OSError:
        os.closerange(first, 65536)


def collapse_to_huge_pages() -> int:
    """Gather this process's private memory into huge pages; returns the bytes gathered, 0 where the kernel cannot.

    A fork copies one entry for each page: 512 times fewer afterwards. Pages that a child writes to are split again,
    so that it copies no more than before.
    """
    gathered = 0
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with open("/proc/self/maps") as maps:
        regions = [line.split() for line in maps]
    for bounds, rights, _, _, inode, *name in regions:
        if rights != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
            continue
        start, end = (int(bound, 16) for bound in bounds.split("-"))
        for at in range(-(-start // _HUGE_PAGE) * _HUGE_PAGE, end - _HUGE_PAGE + 1, _HUGE_PAGE):
            gathered += _HUGE_PAGE * (_libc.madvise(at, _HUGE_PAGE, _MADV_COLLAPSE) == 0)
    return gathered


FORKS = 24
"""of a process until it gathers its memory: that takes 0.3 s, and makes each fork about 10 ms cheaper"""
_forks = itertools.count(1)


def forked() -> None:
    """Count a fork of this process; at the :data:`FORKS`-th, gather its memory into huge pages."""
    if next(_forks) == FORKS:
        collapse_to_huge_pages()


def set_capabilities(mask: int, *, handed_on: bool = False) -> None:
    """Keep only the capabilities in ``mask``; with ``handed_on``, programs that are executed have them, too."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    low, high = mask & 0xFFFF_FFFF, mask >> 32
    inherited = (low, high) if handed_on else (0, 0)
    data = ctypes.create_string_buffer(struct.pack("=6I", low, low, inherited[0], high, high, inherited[1]))
    syscall("capset", number("capset"), ctypes.addressof(header), ctypes.addressof(data))
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64 * handed_on):
        if mask >> capability & 1:
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def drop_bounding_set(keep: int = 0) -> None:
    """Take every capability but those of the mask ``keep`` out of the bounding set, so that no program executed later
    can gain one."""
    for capability in range(64):
        if keep >> capability & 1:
            continue
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break


_PLAIN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove a folder in which no process works any more. What cannot be removed stays.

    Nested folders are brought up to the top one by one, so that neither the depth of a tree, the length of its paths
    nor the rights on its folders stand in the way; ``shutil.rmtree`` descends by recursion, and raises.
    """
    with contextlib.suppress(OSError):
        root = os.open(path, _PLAIN)
        try:
            _flatten(root)
        finally:
            os.close(root)
    shutil.rmtree(path, ignore_errors=True)


def _flatten(root: int) -> None:
    """Empty the folder open as ``root``."""
    new, count = secrets.token_hex(8), 0
    folders = _take_in(root)
    while folders:
        name = folders.pop()
        with contextlib.suppress(OSError):
            os.chmod(name, 0o700, dir_fd=root)
            inner = os.open(name, _PLAIN, dir_fd=root)
            try:
                for below in _take_in(inner):
                    os.chmod(below, 0o700, dir_fd=inner)
                    os.rename(below, up := f"{new}-{count}", src_dir_fd=inner, dst_dir_fd=root)
                    count += 1
                    folders.append(up)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=root)


def _take_in(folder: int) -> list[str]:
    """Remove what is not a folder from the folder open as ``folder``; return the names of its folders."""
    with os.scandir(folder) as entries:
        inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in inside:
        if not is_folder:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in inside if is_folder]
