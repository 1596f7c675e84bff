"""The sandbox's parts by themselves, and the whole of it as a normal user."""

import errno
import fcntl
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import ttir_executor
from drkernel.gym.sandbox import layers as sandbox
from drkernel.gym.sandbox import linux, seccomp
from drkernel.gym.sandbox.linux import remove_tree
from places import KIT

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000
X86, ARM = 0xC000003E, 0xC00000B7


def decide(program, nr, *args, arch=X86):
    """What a filter says to one call: an interpreter of its few instructions, after the kernel documentation."""
    at, value = 0, 0
    given = [*args, *[0] * (6 - len(args))]
    words = {0: nr, 4: arch, **{16 + 8 * place: arg & 0xFFFFFFFF for place, arg in enumerate(given)}}
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        if code == 0x20:
            value = words[operand]
        elif code == 0x06:
            return operand
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
            at += if_true if holds else if_false


def assemble(**kwargs):
    return seccomp.assemble(**{"allow_exec": False, "allow_signals": False, "own_pid": 77, "arch": "x86_64", **kwargs})


@pytest.mark.parametrize("nr", [0, 1, 9, 39, 202, 257, 56, 157, 53])
def test_ordinary_calls_pass(nr):
    assert decide(assemble(), nr, {53: 1}.get(nr, 0)) == ALLOW


STREAM, DATAGRAM, RAW, SEQUENCED = 1, 2, 3, 5
SHARED, PRIVATE, VALIDATED, ANONYMOUS = 1, 2, 3, 0x20


def test_memory_that_no_limit_counts_is_refused():
    program, with_gpu = assemble(), assemble(of_driver=True)
    for kind in (SHARED, VALIDATED):
        assert decide(program, 9, 0, 4096, 3, kind | ANONYMOUS) == EPERM
        assert decide(program, 9, 0, 4096, 3, kind) == ALLOW, "of a file, whose size is bounded"
        assert decide(with_gpu, 9, 0, 4096, 3, kind | ANONYMOUS) == ALLOW
    assert decide(program, 9, 0, 4096, 3, PRIVATE | ANONYMOUS) == ALLOW
    for command, answer in {
        0: ALLOW,
        2: ALLOW,
        5: ALLOW,
        6: EPERM,
        7: EPERM,
        37: EPERM,
        38: EPERM,
        1030: ALLOW,
    }.items():
        assert decide(program, 72, 5, command) == answer and decide(with_gpu, 72, 5, command) == ALLOW
    assert decide(program, 54, 5, 1, 7) == EPERM and decide(program, 54, 5, 1, 20) == ALLOW
    assert [decide(program, nr) for nr in (206, 444, 445)] == [EPERM] * 3


def test_socket_pairs_that_could_send_to_an_address_are_refused():
    flags = 0x80800
    for kind, answer in {STREAM: ALLOW, SEQUENCED: ALLOW, DATAGRAM: EPERM, RAW: EPERM}.items():
        assert (
            decide(assemble(), 53, 1, kind | flags)
            == decide(assemble(arch="aarch64"), 199, 1, kind, arch=ARM)
            == answer
        )


def test_nvidias_driver_may_listen_and_nobody_may_connect():
    """Without a Unix socket that listens and ``memfd_create`` cuInit fails with error 304."""
    program = assemble(of_driver=True)
    assert [decide(program, nr) for nr in (49, 50, 319)] == [ALLOW] * 3
    assert (decide(program, 73), decide(assemble(), 73)) == (ALLOW, EPERM), "flock, which its compilers take"
    assert decide(program, 41, 1, SEQUENCED | 0x80000) == ALLOW
    assert decide(program, 41, 1, DATAGRAM) == decide(program, 41, 2, STREAM) == decide(program, 42) == EPERM


X86_REFUSED = """
41:1 socket, 42:0 connect, 101:0 ptrace, 310:0 process_vm_readv, 272:0 unshare, 165:0 mount, 321:0 bpf, 425:0 io_uring,
59:0 execve, 62:1 kill another, 62:4294967295 kill all, 53:2 socketpair of the internet, 157:1 parent death signal,
157:4 dumpable, 56:268435456 clone into a user namespace, 319:0 memfd
"""


@pytest.mark.parametrize("call", X86_REFUSED.replace("\n", " ").split(", "))
def test_refused_calls(call):
    nr, arg0 = map(int, call.split()[0].split(":"))
    assert decide(assemble(), nr, arg0) == EPERM


def test_calls_that_pass_on_their_argument():
    assert decide(assemble(), 62, 77) == ALLOW and decide(assemble(allow_signals=True), 62, 1) == ALLOW
    assert decide(assemble(allow_exec=True), 59) == ALLOW
    assert decide(assemble(), 435) == ENOSYS, "clone3 hides its flags in memory: libc must fall back to clone"


def test_threads_without_processes():
    program = assemble(allow_fork=False)
    assert decide(program, 56, 0x3D0F00) == ALLOW and decide(program, 56, 0x1200011) == EPERM
    assert decide(program, 57) == EPERM and decide(program, 58) == EPERM
    assert decide(assemble(), 56, 0x1200011) == ALLOW


def test_other_call_tables_end_the_process():
    assert decide(assemble(), 0, arch=0x40000003) == KILL, "32-bit calls"
    assert decide(assemble(), 0x40000000 | 41) == KILL, "x32 calls"
    arm = assemble(arch="aarch64")
    assert (
        decide(arm, 198, arch=ARM) == EPERM and decide(arm, 63, arch=ARM) == ALLOW and decide(arm, 0, arch=X86) == KILL
    )


def test_every_jump_lands_inside():
    for kwargs in ({}, {"allow_fork": False, "allow_exec": True}, {"arch": "aarch64"}):
        program = assemble(**kwargs)
        for at, (code, if_true, if_false, _) in enumerate(program):
            assert code == 0x06 or at + 1 + max(if_true, if_false) < len(program)
        assert len(program) < 4096


def in_child(work):
    """The text a forked child returns."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, str(work()).encode())
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with os.fdopen(read) as file:
        return file.read()


@pytest.mark.skipif(not seccomp.abi(), reason="the kernel offers no Landlock")
def test_landlock_gives_what_it_is_told_and_nothing_else(tmp_path):
    for name in ("readable", "writable", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    rules = seccomp.Rules([str(tmp_path / "readable")])

    def work():
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        rules.restrict(writable=[str(tmp_path / "writable")])
        can = []
        for name in ("readable", "writable", "hidden"):
            for mode in ("r", "a"):
                try:
                    open(tmp_path / name / "file", mode).close()
                    can.append(f"{mode} {name}")
                except PermissionError:
                    continue
        return ", ".join(can)

    assert in_child(work) == "r readable, r writable, a writable"


@pytest.mark.skipif(seccomp.abi() < 5, reason="this kernel lets everybody speak to the devices that are open")
def test_a_driver_that_is_named_may_be_spoken_to_and_no_other():
    """A GPU's driver is used by ioctl alone; the kernel says ENOTTY where /dev/zero itself would have answered."""
    rules = seccomp.Rules([], ["/dev/null"])

    def work():
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        rules.restrict(writable=["/dev/zero"])
        said = []
        for path in ("/dev/zero", "/dev/null"):
            with open(path, "r+b", buffering=0) as device:
                try:
                    fcntl.ioctl(device, 0xC0FFEE)
                except OSError as error:
                    said.append(errno.errorcode[error.errno])
        return said

    assert in_child(work) == "['ENOTTY', 'EACCES']"


def test_capabilities_can_be_given_up_for_good():
    def work():
        linux.drop_bounding_set()
        linux.set_capabilities(0)
        try:
            linux.set_capabilities(1)
        except OSError:
            status = Path("/proc/self/status").read_text()
            return int(re.search(r"CapEff:\s*(\w+)", status)[1], 16)
        return "regained"

    if os.geteuid() == 0:
        assert in_child(work) == "0"


@pytest.mark.parametrize("module", [sandbox, ttir_executor])
def test_our_packages_are_not_readable_to_a_candidate(module):
    above = Path(module.__file__).resolve().parents
    package = next(path for path in above if path.name in ("drkernel", "ttir_executor"))
    for path in map(Path, sandbox.readable_paths()):
        assert path != package and path not in package.parents, path
        assert package not in path.parents


def test_our_packages_are_left_out_of_a_folder_that_they_share_with_others(tmp_path, monkeypatch):
    for name in ("lib/site/ours", "lib/site/executor", "lib/site/torch", "lib/other", "bin"):
        (tmp_path / name).mkdir(parents=True)
    ours = (tmp_path / "lib" / "site" / "ours", tmp_path / "lib" / "site" / "executor")
    monkeypatch.setattr(sandbox, "_OURS", ours)
    found = {str(Path(path).relative_to(tmp_path)) for path in sandbox._except_ourselves(str(tmp_path))}
    assert found == {"bin", "lib/other", "lib/site/torch"}
    assert sandbox._except_ourselves(str(ours[0])) == []


def test_two_zygotes_never_share_user_ids():
    first, second = sandbox.Surroundings(), sandbox.Surroundings()
    sandbox._claim_user_ids(first)
    sandbox._claim_user_ids(second)
    ids = [{around.runner_uid(slot) for slot in range(64)} | {around.device_uid(slot) for slot in range(64)}
           for around in (first, second)]  # fmt: skip
    assert len(ids[0]) == len(ids[1]) == 128 and not ids[0] & ids[1]
    for around in (first, second):
        around.uid_claim.close()


def test_huge_pages_change_no_byte():
    data = bytearray(os.urandom(8 << 20))
    copy = bytes(data)
    assert linux.collapse_to_huge_pages() >= 0
    assert data == copy and threading.active_count() >= 1


# ---- everything, as a normal user


@pytest.mark.slow
@pytest.mark.parametrize("without", [(), ("pid namespace", "network namespace", "mount namespace")])
def test_everything_as_a_normal_user(without):
    def become_user():
        if os.geteuid() == 0:  # become user 1000 of a user namespace; executing Python then drops every capability
            linux.unshare(linux.CLONE_NEWUSER)
            for name, text in (("setgroups", "deny"), ("uid_map", "1000 0 1"), ("gid_map", "1000 0 1")):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)

    script = str(KIT / "as_normal_user.py")
    done = subprocess.run([sys.executable, script, *without], capture_output=True, text=True, preexec_fn=become_user)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["uid"] != 0 and told["right"] == [1, 1]
    assert told["exit"] == "runtime_error ExitedEarly" and told["crash"] == "runtime_error SIGSEGV"
    assert told["bomb"] in ("timeout Timeout", "out_of_memory OutOfMemoryError")
    assert told["signal"].split()[-1] in ("PermissionError", "ProcessLookupError")
    assert told["network"].split()[-1] in ("PermissionError", "OSError") and told["home"].endswith("PermissionError")
    assert set(without) <= set(told["missing"]) and "seccomp" in told["layers"]


def test_whatever_is_left_in_a_folder_is_removed(tmp_path):
    """Deeper than a path may be long, without rights, named like what the removal makes; and nothing outside."""
    kept, tree = tmp_path / "kept", tmp_path / "tree"
    kept.mkdir()
    (kept / "file").write_text("still here")
    (tree / "shut" / "in").mkdir(parents=True)
    (tree / "shut" / "in" / "file").write_text("x")
    (tree / "link").symlink_to(kept)
    os.mkfifo(tree / "fifo")
    work = os.getcwd()
    os.chdir(tree)
    try:
        for _ in range(3000):
            os.mkdir("0")
            os.symlink(kept, "l")
            os.chdir("0")
    finally:
        os.chdir(work)
    (tree / "shut").chmod(0)
    remove_tree(str(tree))
    remove_tree(str(tmp_path / "none"))
    assert not tree.exists() and (kept / "file").read_text() == "still here"


def test_a_sibling_is_its_makers_parents_child():
    script = """
import os
from drkernel.gym.sandbox import linux
if os.fork() == 0:
    if linux.fork_sibling() == 0:
        os._exit(7 if os.getppid() == int(os.environ["TOP"]) else 8)
    os._exit(0)
print(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)))
"""
    script = "import os; os.environ['TOP'] = str(os.getpid())" + script
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[0, 7]\n", done.stderr
