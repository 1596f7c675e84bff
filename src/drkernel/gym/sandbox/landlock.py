"""Landlock by ctypes: which files a process may see, from the kernel's own access control.

A ruleset names directories with the rights they give; everything else is refused. Rights grow with the kernel's ABI
(1: files, 2: refer, 3: truncate, 4: TCP, 5: device ioctl, 6: signals and abstract sockets); what the kernel lacks is
left out and :func:`abi` tells. Source of the constants: ``linux/landlock.h``.
"""

import ctypes
import os
import struct
from collections.abc import Iterable, Sequence
from typing import NoReturn

from drkernel.gym.sandbox import linux

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
_NET_RIGHTS = 0b11  # bind and connect of TCP
_SCOPES = 0b11  # abstract unix sockets, signals


def abi() -> int:
    """The kernel's Landlock version; 0 when it is absent or switched off."""
    try:
        return linux.syscall("landlock_create_ruleset", _CREATE, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def all_rights(version: int) -> int:
    """Every file right that an ABI version knows."""
    bits = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    return (1 << bits) - 1


class Rules:
    """Paths opened once (in a trusted process) and applied many times, with extra paths per job."""

    def __init__(self, readable: Iterable[str], writable_files: Iterable[str] = ()):
        self._version = abi()
        self._fds: list[tuple[int, int]] = []
        if self._version:
            for path in readable:
                self._open(path, READ)
            for path in writable_files:
                self._open(path, READ_FILE | WRITE_FILE)

    def _open(self, path: str, rights: int) -> None:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return  # a path that does not exist gives no rights
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        self._fds.append((fd, rights))

    def restrict(self, *, writable: Iterable[str] = (), readable: Iterable[str] = (), network: bool = False) -> int:
        """Confine the calling process for good; returns the ABI version. ``no_new_privs`` must be set. With ``network``
        TCP stays allowed."""
        if not self._version:
            raise OSError("the kernel offers no Landlock")
        version, rights = self._version, all_rights(self._version)
        attributes = struct.pack("=Q", rights)
        if version >= 4:
            attributes += struct.pack("=Q", 0 if network else _NET_RIGHTS)
        if version >= 6:
            attributes += struct.pack("=Q", _SCOPES)
        buffer = ctypes.create_string_buffer(attributes, len(attributes))
        ruleset = linux.syscall("landlock_create_ruleset", _CREATE, ctypes.addressof(buffer), len(attributes), 0)
        try:
            for fd, allowed in self._fds:
                _add(ruleset, fd, allowed & rights)
            for path, allowed in [(p, rights) for p in writable] + [(p, READ) for p in readable]:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
                # what is named itself may be a driver, which is spoken to by ioctl; in a folder nothing is
                _add(ruleset, fd, allowed & (~_IOCTL_DEV if os.path.isdir(path) else _FILE_RIGHTS))
                os.close(fd)
            linux.syscall("landlock_restrict_self", _RESTRICT, ruleset, 0)
        finally:
            os.close(ruleset)
        return version


def _add(ruleset: int, fd: int, rights: int) -> None:
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, fd), 12)
    linux.syscall("landlock_add_rule", _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.addressof(rule), 0)


def execute(argv: Sequence[str], writable: Sequence[str], network: bool) -> NoReturn:
    """Become the program ``argv``, which may read everything and write to ``writable`` alone. Raises ``OSError``."""
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    Rules(["/"], ["/dev/null", "/dev/zero", "/dev/tty"]).restrict(writable=writable, network=network)
    os.execvp(argv[0], list(argv))
