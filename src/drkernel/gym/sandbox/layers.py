"""The confinement of an untrusted process: several layers, each used where the machine permits and reported where not.

The zygote calls :func:`prepare` once, which tests what is permitted and enters namespaces of its own. Every child then
calls :func:`confine` on itself, after the fork and before the candidate's first line. See ``docs/sandbox.md``.
"""

import errno
import glob
import os
import resource
import shutil
import signal
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from drkernel.digest import package_folder
from drkernel.gym.sandbox import linux, seccomp

MAX_JOBS = 64
"""most jobs of one zygote at a time"""
_UID_FIRST, _UID_LAST, _UID_BLOCK = 61_184, 65_519, 2 * MAX_JOBS
"""user ids that systemd sets aside for services of the moment: nobody's own"""
COMPILERS = ("CC", "CXX", "CUDAHOSTCXX")
"""variables that name compilers: of Triton's launchers, of C++ extensions, of nvcc"""
WRITABLE_DEVICES = ("/dev/null", "/dev/urandom", "/dev/random")
_OURS = (Path(__file__).resolve().parents[2], package_folder("ttir_executor").resolve())
_FACTS = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/sys/vm/overcommit_memory")
"""of the machine, for everyone; a job with a /proc of its own opens them there"""
_GRACE_CPU_S = 5
"""processor seconds between SIGXCPU and SIGKILL"""


@dataclass(frozen=True)
class RunnerLimits:
    """Resource limits of one untrusted process and everything it starts."""

    memory_bytes: int = 4 << 30
    """memory beyond what the zygote already held"""
    cpu_s: int = 120
    """processor seconds of a runner and all that it starts, together"""
    processes: int = 64
    """processes and threads, where a user id of its own makes this countable"""
    file_bytes: int = 256 << 20
    """size of one file, and of all scratch where it is a tmpfs"""
    files: int = 1 << 15
    """files and folders in scratch, where it is a tmpfs"""
    open_files: int = 256
    """file descriptors"""
    allow_exec: bool = False
    """may execute programs (a real GPU needs the C compiler)"""


@dataclass
class Surroundings:
    """The layers that this machine permits, as the zygote found once."""

    pid_namespace: bool = False
    needs_keeper: bool = False
    """PID namespaces can be made only by a process that does nothing else afterwards"""
    user_namespace: bool = False
    mount_namespace: bool = False
    network_namespace: bool = False
    first_uid: int | None = None
    keep_capabilities: int = 0
    rules: seccomp.Rules | None = None
    missing: dict[str, str] = field(default_factory=dict)
    uid_claim: socket.socket | None = None

    def runner_uid(self, slot: int) -> int | None:
        """The user id of a job's runner; None when it keeps the zygote's."""
        return None if self.first_uid is None else self.first_uid + slot

    def device_uid(self, slot: int) -> int | None:
        """The user id of a job's device; never the runner's."""
        return None if self.first_uid is None else self.first_uid + MAX_JOBS + slot

    @property
    def can_fork_safely(self) -> bool:
        """Whether everything a runner forks can be found and counted."""
        return self.pid_namespace or self.first_uid is not None


# ---- once, in the zygote


def prepare(without: frozenset[str] = frozenset()) -> Surroundings:
    """Enter namespaces and determine what else is available. Call before any thread starts.

    ``without`` names layers to leave out (to test the others).
    """
    found = Surroundings()
    if os.geteuid() == 0 and "own user id" not in without:
        _claim_user_ids(found)  # before the network namespace: the claim is visible machine-wide
    elif "own user id" not in without:
        found.missing["own user id"] = "needs root"
    namespaces = {
        "network namespace": linux.CLONE_NEWNET,
        "mount namespace": linux.CLONE_NEWNS,
        "pid namespace": linux.CLONE_NEWPID,
    }
    wanted = {name: flag for name, flag in namespaces.items() if name not in without}
    if os.geteuid() != 0 and wanted:
        _enter_user_namespace(found)
    for name in wanted:
        _try(found, name, {"network namespace": _network, "mount namespace": _mounts, "pid namespace": _pids}[name])
    for name in without:
        found.missing[name] = "switched off"
    if "landlock" not in without:
        if seccomp.abi():
            found.rules = seccomp.Rules(readable_paths(), WRITABLE_DEVICES)
        else:
            found.missing["landlock"] = "the kernel offers none"
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    return found


def _try(found: Surroundings, name: str, step: Callable[[Surroundings], None]) -> None:
    try:
        step(found)
    except OSError as error:
        found.missing[name] = error.strerror or str(error)


def _enter_user_namespace(found: Surroundings) -> None:
    """As a normal user: become root of a user namespace, where the other namespaces can be made."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        linux.unshare(linux.CLONE_NEWUSER)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        found.user_namespace = True
    except OSError as error:
        found.missing["user namespace"] = error.strerror or str(error)


def _network(found: Surroundings) -> None:
    linux.unshare(linux.CLONE_NEWNET)
    found.network_namespace = True


def _mounts(found: Surroundings) -> None:
    linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    found.mount_namespace = True


def _pids(found: Surroundings) -> None:
    """Determine, in a child, whether PID namespaces can be made, and whether their maker can return to its own."""
    pid = os.fork()
    if pid == 0:
        os._exit(_try_pid_namespace())
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status not in (_DIRECT, _BY_KEEPER):
        raise OSError(status, os.strerror(max(status, 0)))
    found.pid_namespace, found.needs_keeper = True, status == _BY_KEEPER


_DIRECT, _BY_KEEPER = 201, 202


def _try_pid_namespace() -> int:
    """Exit code of the trial: one of the above, or the error's number."""
    try:
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        linux.unshare(linux.CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if os.getpid() == 1 else 1)
        if os.waitpid(pid, 0)[1] != 0:
            return errno.EPERM
    except OSError as error:
        return error.errno or errno.EPERM
    try:
        linux.setns(own, linux.CLONE_NEWPID)
    except OSError:  # in a user namespace: one's own PID namespace belongs to its parent
        return _BY_KEEPER
    return _DIRECT


@contextmanager
def child_in_new_pid_namespace() -> Iterator[None]:
    """The child forked in this block is the first process of a PID namespace: when it dies, all in there die."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        linux.unshare(linux.CLONE_NEWPID)
        try:
            yield
        finally:
            linux.setns(own, linux.CLONE_NEWPID)
    finally:
        os.close(own)


def _claim_user_ids(found: Surroundings) -> None:
    """A block of user ids that no other zygote of this machine uses; the claim is an abstract socket, gone with us."""
    for first in range(_UID_FIRST, _UID_LAST - _UID_BLOCK, _UID_BLOCK):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0drkernel-uids-{first}")
        except OSError:
            claim.close()
            continue
        found.first_uid, found.uid_claim = first, claim
        break
    else:
        found.missing["own user id"] = "every block of user ids is taken"
        return
    if not _readable_by_others():
        if seccomp.abi():
            found.keep_capabilities = 1 << linux.CAP_DAC_READ_SEARCH
        else:
            found.first_uid = None
            found.missing["own user id"] = f"other users cannot read {sys.base_prefix}"


def _readable_by_others() -> bool:
    """Whether a process without privileges could import from where Python and its packages are."""
    for path in (sys.base_prefix, sysconfig.get_path("purelib"), os.path.dirname(os.__file__)):
        while True:
            if not os.stat(path).st_mode & 0o001:
                return False
            parent = os.path.dirname(path)
            if parent == path:
                break
            path = parent
    return True


def mount_own_proc(found: Surroundings) -> None:
    """Give the calling process, the first of a PID namespace, a /proc that shows it: NVIDIA's driver writes the names
    of its threads there, by their numbers inside."""

    def step(found: Surroundings) -> None:
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)

    _try(found, "own /proc", step)


def readable_paths() -> list[str]:
    """Files a candidate may read: the interpreter, packages other than ours, system libraries."""
    paths = ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf",
             "/etc/passwd", "/sys/devices/system/cpu", "/dev/null", *_FACTS]  # fmt: skip
    paths += [os.path.realpath(sys.prefix) + "/pyvenv.cfg", os.path.realpath(sys.base_prefix) + "/bin"]
    paths += _except_ourselves(os.path.join(os.path.realpath(sys.base_prefix), "lib"))
    for kind in ("stdlib", "platstdlib", "purelib", "platlib"):
        paths += _except_ourselves(os.path.realpath(sysconfig.get_path(kind)))
    for entry in sys.path:  # packages that a .pth file or a venv over the system's packages adds
        if os.path.basename(entry) in ("site-packages", "dist-packages") and os.path.isdir(entry):
            paths += _except_ourselves(os.path.realpath(entry))
    return list(dict.fromkeys(paths))


def gpu_facts() -> list[str]:
    """The files that CUDA's libraries read, and the headers that Triton's launcher is compiled with."""
    paths = [*_FACTS, *glob.glob("/proc/driver/nvidia*"), "/proc/devices", "/proc/modules",
             "/proc/sys/kernel/random/boot_id", "/proc/sys/vm/mmap_min_addr", "/sys/module", "/sys/bus/pci",
             "/sys/devices", "/etc/ld.so.conf", "/etc/ld.so.conf.d", sysconfig.get_path("include")]  # fmt: skip
    return [*(path for path in paths if os.path.exists(path)), *_of_cuda(), *_of_compilers()]


def _of_compilers() -> list[str]:
    """The compilers that the environment names, with the folders that they are installed in, and ninja."""
    named = [os.path.realpath(os.environ.get(name, "")) for name in COMPILERS]
    homes = [os.path.dirname(os.path.dirname(path)) for path in named if os.path.isfile(path)]
    ninja = shutil.which("ninja")
    return [home for home in homes if home not in ("/", "/usr")] + ([os.path.realpath(ninja)] if ninja else [])


def _of_cuda() -> list[str]:
    """The folders of CUDA that this process's environment names: a toolkit, and what holds libraries of NVIDIA's.

    Other folders of the search path stay closed: what a judge's user has in them is not the candidate's to read.
    """
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [os.environ.get("TRITON_LIBCUDA_PATH", ""), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    found = [path for path in homes if os.path.isabs(path) and os.path.exists(f"{path}/bin/nvcc")]
    return found + [
        path for path in folders if os.path.isabs(path) and glob.glob(f"{glob.escape(path)}/lib[cn][uv]*.so*")
    ]


def _except_ourselves(folder: str) -> list[str]:
    """Return a folder, or its entries except our packages: tasks and judge must not be readable by the candidate."""
    if Path(folder) in _OURS:
        return []
    if not any(Path(folder) in package.parents for package in _OURS):
        return [folder]
    return [path for entry in os.scandir(folder) for path in _except_ourselves(os.path.realpath(entry.path))]


# ---- in every child


@dataclass(frozen=True)
class Confinement:
    """How one child is confined."""

    limits: RunnerLimits
    scratch: str | None
    """the only folder it may write to, if any"""
    uid: int | None
    memory_in_use: int
    """address space that the process already had, in bytes"""
    gpu: bool = False
    """whether it may use the machine's own GPU"""
    trusted: bool = False
    """whether it may read this package (the device process: confined as a second line of defence, though it runs no
    candidate code)"""


def confine(
    how: Confinement, surroundings: Surroundings, arrange: Callable[[], None]
) -> tuple[list[str], dict[str, str]]:
    """Confine the calling process for good; returns (layers that are on, layer -> why it is not).

    ``arrange`` closes the descriptors that are not the child's own, as soon as the layers that need them are on.
    """
    entered = {
        "pid namespace": surroundings.pid_namespace,
        "network namespace": surroundings.network_namespace,
        "mount namespace": surroundings.mount_namespace,
    }
    on = [name for name, inside in entered.items() if inside]
    missing = dict(surroundings.missing)

    def layer(name: str, step: Callable[[], object]) -> None:
        if name in missing:
            return
        try:
            step()
            on.append(name)
        except OSError as error:
            missing[name] = error.strerror or str(error)

    keep, executes = surroundings.keep_capabilities if how.uid else 0, how.limits.allow_exec
    if how.uid is not None:
        layer("own user id", lambda: _become(how.uid or 0, surroundings.keep_capabilities, handed_on=executes))
    # a compiler reads headers from the same closed folders that the interpreter imports from
    layer("capabilities dropped", lambda: linux.set_capabilities(keep, handed_on=executes))
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which clears it
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    layer("no new privileges", lambda: linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1))
    rules = surroundings.rules
    if rules is not None:
        # device files, one for memory that no limit counts; the driver's cuInit names its threads, else error 304
        devices = [*glob.glob("/dev/nvidia*"), *glob.glob("/dev/nvidia-caps/*"), "/dev/zero", "/proc/self/task"]
        writable = [*([how.scratch] if how.scratch else []), *(devices if how.gpu else [])]
        readable = ["/proc/self", *(map(str, _OURS) if how.trusted else []), *(gpu_facts() if how.gpu else [])]
        layer("landlock", lambda: rules.restrict(writable=writable, readable=readable))
    arrange()
    layer("resource limits", lambda: _limit(how, surroundings))
    layer("seccomp", lambda: seccomp.install(_filter(how, surroundings, on)))
    return on, missing


def _limit(how: Confinement, surroundings: Surroundings) -> None:
    limits = how.limits
    hard = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_MEMLOCK: 64 << 10,
    }
    if how.uid is not None:
        hard[resource.RLIMIT_NPROC] = limits.processes
    elif surroundings.user_namespace:  # counted over all jobs of this zygote
        hard[resource.RLIMIT_NPROC] = limits.processes + 3 * MAX_JOBS
    if not limits.allow_exec:  # CUDA reserves address space far beyond what it uses
        hard[resource.RLIMIT_AS] = how.memory_in_use + limits.memory_bytes
    for what, value in hard.items():
        ceiling = resource.getrlimit(what)[1]
        # at the hard limit on processor time the kernel sends SIGKILL, which does not say why
        most = value + _GRACE_CPU_S if what == resource.RLIMIT_CPU else value
        most = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
        resource.setrlimit(what, (min(value, most), most))


def _become(uid: int, keep: int, *, handed_on: bool) -> None:
    linux.drop_bounding_set(keep if handed_on else 0)
    os.setgroups([])
    if keep:
        linux.prctl(linux.PR_SET_KEEPCAPS, 1)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _filter(how: Confinement, surroundings: Surroundings, on: list[str]) -> list[seccomp.Instruction]:
    contained = surroundings.pid_namespace or (surroundings.rules is not None and seccomp.abi() >= 6)
    return seccomp.assemble(
        allow_exec=how.limits.allow_exec,
        of_driver=how.gpu,
        allow_signals=contained,
        allow_fork=surroundings.can_fork_safely,
        own_pid=os.getpid(),
    )
