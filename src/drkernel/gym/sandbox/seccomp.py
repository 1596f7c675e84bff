"""A seccomp-bpf filter, assembled here and loaded by ctypes: what a candidate's process may not ask the kernel for.

The filter is a list of refusals (the answer is ``EPERM``), not of permissions: PyTorch and Triton use too many calls
for a list of those to be right on every kernel. What is refused: sockets, other processes' memory, limits and
priorities, namespaces, mounts, credentials of the kernel's keyring, bpf, perf, io_uring (it would do the refused calls
for you), memory that no limit counts (System V, memfd, shared anonymous mappings, enlarged socket buffers, range
locks), socket pairs that could send to addresses, and, by policy, execve. Calls of another architecture end the
process. Source of the layout: ``linux/filter.h``, ``linux/seccomp.h``.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Sequence
from typing import NoReturn

from drkernel.gym.sandbox import linux

# name -> (x86_64, aarch64); None where the architecture lacks the call
_CALLS: dict[str, tuple[int | None, int | None]] = {
    # network
    "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "ioprio_set": (251, 30), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    # kernel interfaces with a history
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262), "personality": (135, 92), "modify_ldt": (154, None), "vhangup": (153, 58),
    # the machine
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None), "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    # memory and queues that outlive or escape a process
    "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "semget": (64, 190),
    "semop": (65, 193), "semtimedop": (220, 192), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "io_setup": (206, 0), "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    # what candidates on one machine could tell each other by files that they all may read, or see of each other there
    "inotify_init": (253, None), "inotify_init1": (294, 26),
}  # fmt: skip
_SOCKET = (41, 198)
_DRIVER: dict[str, tuple[int | None, int | None]] = {"socket": _SOCKET, "bind": (49, 200), "listen": (50, 201),
                                                     "memfd_create": (319, 279), "flock": (73, 32)}  # fmt: skip
"""what NVIDIA's driver does not start without: memory, and a socket where its IPC listens, to which nobody connects;
and locks, without which torch.compile compiles nothing"""
_EXEC: dict[str, tuple[int | None, int | None]] = {"execve": (59, 221), "execveat": (322, 281)}
_SIGNALS = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
            "rt_tgsigqueueinfo": (297, 240)}  # fmt: skip
_OF_OTHERS = {"prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
              "sched_setparam": (142, 118), "sched_setattr": (314, 274)}  # fmt: skip
"""calls whose first argument is a process; 0 is the one that calls"""
_SETPRIORITY = (141, 140)
_FORK: dict[str, tuple[int | None, int | None]] = {"fork": (57, None), "vfork": (58, None)}
_CLONE, _CLONE3, _SOCKETPAIR, _PRCTL = (56, 220), (435, 435), (53, 199), (157, 167)
_MMAP, _FCNTL, _SETSOCKOPT = (9, 222), (72, 25), (54, 208)
_AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}

_LD_ABS, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_NR, _ARCH, _ARG0_LOW, _ARG_BYTES = 0, 4, 16, 8
_NEW_NAMESPACES = 0x7E02_0080  # every CLONE_NEW* bit (time namespaces included)
_CLONE_THREAD = 0x0001_0000
_AF_UNIX = 1
_DATAGRAM_BIT = 2
"""of socket types: datagram and raw, which on a Unix socket is the same, have it; stream and seqpacket do not"""
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20
_SO_SNDBUF = 7
_RANGE_LOCKS = (6, 7, 37, 38)
"""fcntl's commands that lock ranges of a file: each is some memory of the kernel's, and there may be any number"""
_X32_BIT = 0x4000_0000
_PRCTL_REFUSED = (linux.PR_SET_PDEATHSIG, linux.PR_SET_DUMPABLE, linux.PR_SET_CHILD_SUBREAPER)

Instruction = tuple[int, int, int, int]


def assemble(
    *,
    allow_exec: bool,
    allow_signals: bool,
    allow_fork: bool = True,
    of_driver: bool = False,
    own_pid: int = 0,
    arch: str | None = None,
) -> list[Instruction]:
    """The filter program as (code, jump if true, jump if false, operand).

    ``allow_signals`` is right where a PID namespace or Landlock's signal scope already keeps signals inside the job;
    otherwise only ``own_pid`` may be signalled. Without ``allow_fork`` there can be threads but no processes, for where
    nothing else could find them all again. ``of_driver``: what the driver of a real GPU needs, memory that no limit
    counts and Unix sockets that listen; and of its compilers, locks of files.
    """
    arch = arch or linux.machine()
    column = 0 if arch == "x86_64" else 1
    refuse = (_RET, 0, 0, _ERRNO | errno.EPERM)
    program: list[Instruction] = [
        (_LD_ABS, 0, 0, _ARCH),
        (_JEQ, 1, 0, _AUDIT_ARCH[arch]),
        (_RET, 0, 0, _KILL_PROCESS),
        (_LD_ABS, 0, 0, _NR),
    ]
    if arch == "x86_64":
        program += [(_JGE, 0, 1, _X32_BIT), (_RET, 0, 0, _KILL_PROCESS)]
    refused = {**_CALLS, **({} if allow_exec else _EXEC), **({} if of_driver else _DRIVER)}
    for numbers in refused.values():
        if (nr := numbers[column]) is not None:
            program += [(_JEQ, 0, 1, nr), refuse]
    program += [(_JEQ, 0, 1, _CLONE3[column]), (_RET, 0, 0, _ERRNO | errno.ENOSYS)]  # libc falls back to clone
    program += _on_argument(_CLONE[column], [(_JSET, 0, 1, _NEW_NAMESPACES), refuse])
    if not allow_fork:
        program += _on_argument(_CLONE[column], [(_JSET, 1, 0, _CLONE_THREAD), refuse])
        for numbers in _FORK.values():
            if (nr := numbers[column]) is not None:
                program += [(_JEQ, 0, 1, nr), refuse]
    for number in (_SOCKETPAIR[column], _SOCKET[column]):
        program += _on_argument(number, [(_JEQ, 1, 0, _AF_UNIX), refuse])
        program += _on_argument(number, [(_JSET, 0, 1, _DATAGRAM_BIT), refuse], 1)
    if not of_driver:
        shared = [(_JSET, 0, 2, _MAP_SHARED), (_JSET, 0, 1, _MAP_ANONYMOUS), refuse]
        program += _on_argument(_MMAP[column], shared, 3)
        for command in _RANGE_LOCKS:
            program += _on_argument(_FCNTL[column], [(_JEQ, 0, 1, command), refuse], 1)
        program += _on_argument(_SETSOCKOPT[column], [(_JEQ, 0, 1, _SO_SNDBUF), refuse], 2)
    for numbers in _OF_OTHERS.values():
        program += _on_argument(numbers[column], [(_JEQ, 1, 0, 0), refuse])
    for place in (0, 1):  # of one process, and that is the one that calls
        program += _on_argument(_SETPRIORITY[column], [(_JEQ, 1, 0, 0), refuse], place)
    for option in _PRCTL_REFUSED:
        program += _on_argument(_PRCTL[column], [(_JEQ, 0, 1, option), refuse])
    if not allow_signals:
        for numbers in _SIGNALS.values():
            program += _on_argument(numbers[column], [(_JEQ, 1, 0, own_pid), refuse])
    return [*program, (_RET, 0, 0, _ALLOW)]


def _on_argument(nr: int, test: list[Instruction], place: int = 0) -> list[Instruction]:
    """``test`` (on the low word of the argument at ``place``) for one system call; falls through with the number loaded
    again."""
    body = [(_LD_ABS, 0, 0, _ARG0_LOW + _ARG_BYTES * place), *test, (_LD_ABS, 0, 0, _NR)]
    return [(_JEQ, 0, len(body), nr), *body]


def install(program: list[Instruction]) -> None:
    """Load the filter for this process and all it forks; ``no_new_privs`` must be set. Raises ``OSError``."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))

    class SockFprog(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    fprog = SockFprog(len(program), ctypes.addressof(buffer))
    set_mode_filter = 1
    linux.syscall("seccomp", linux.number("seccomp"), set_mode_filter, 0, ctypes.addressof(fprog))


# ---- Landlock by ctypes: which files a process may see, from the kernel's own access control
#
# A ruleset names directories with the rights they give; everything else is refused. Rights grow with the kernel's ABI
# (1: files, 2: refer, 3: truncate, 4: TCP, 5: device ioctl, 6: signals and abstract sockets); what the kernel lacks is
# left out and `abi` tells. Source of the constants: `linux/landlock.h`.


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
