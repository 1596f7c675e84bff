"""Candidates that attack: a typed error within the deadline, nothing leaks, and the next job is unaffected."""

import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drkernel.gym.session import factory
from drkernel.gym.session.protocol import SessionError
from gym_harness import HEAD, SETTINGS

ANSWER = """
from drkernel.gym.runner.runner import Runner
Runner._describe = lambda self, value, outputs, depth: outputs.append({})
"""
ENDLESS = SETTINGS.model_copy(update={"deadline_s": 1.0})
SHORT = SETTINGS.model_copy(update={"deadline_s": 2.0})
pytestmark = pytest.mark.usefixtures("nothing_leaks")


def expect(error, kind, name=None):
    assert isinstance(error, SessionError), f"accepted: {error}"
    assert error.kind == kind, error
    assert name is None or error.detail.type == name, error


# ---- ends before its time


@pytest.mark.parametrize(
    "exit_",
    ["os._exit(0)", "ctypes.CDLL(None)._exit(0)", "threading.Thread(target=os._exit, args=[0]).start(); time.sleep(5)"],
)
def test_leaving_with_code_zero_is_no_answer(gym, exit_):
    expect(gym.forward(exit_), "runtime_error", "ExitedEarly")


def test_leaving_while_loading(gym):
    expect(gym.load_and_call(HEAD + "os._exit(0)"), "runtime_error", "ExitedEarly")


def test_raising_system_exit_is_an_error_like_any_other(gym):
    expect(gym.forward("sys.exit(0)"), "runtime_error", "SystemExit")


UNSPEAKABLE = """
class Silent(Exception):
    def __str__(self): raise KeyboardInterrupt
class Named(type):
    @property
    def __name__(cls): raise SystemExit(0)
class Nameless(Exception, metaclass=Named): pass
"""


@pytest.mark.parametrize("name", ["Silent", "Nameless"])
def test_an_exception_that_cannot_be_described_is_an_error_like_any_other(gym, name):
    error = gym.forward(f"raise {name}", top=UNSPEAKABLE)
    expect(error, "runtime_error", "Exception")
    assert "launcher" not in gym.last_stdout and "runner.py" not in gym.last_stdout


@pytest.mark.parametrize(
    "crash, name", [("ctypes.string_at(0)", "SIGSEGV"), ("os._exit(3)", "exited"), ("os.abort()", "SIG")]
)
def test_crashes_are_named(gym, crash, name):
    error = gym.forward(crash)
    expect(error, "runtime_error")
    assert error.detail.type.startswith(name)


# ---- never ends


@pytest.mark.parametrize(
    "loop",
    [
        "while True: pass",
        "ctypes.CDLL(None).pause()",
        "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
        "[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]; time.sleep(100)",
        "os.kill(os.getpid(), signal.SIGSTOP); time.sleep(100)",
        "x = torch.ones(3000, 3000, device='cuda')\nwhile True: x = x @ x",
    ],
)
def test_what_does_not_end_is_ended(gym, loop):
    start = time.monotonic()
    expect(gym.forward(loop, settings=ENDLESS), "timeout")
    assert time.monotonic() - start < 20


# ---- takes too much


@pytest.mark.parametrize(
    "bomb",
    [
        "bytearray(2 << 30)",
        "sys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
        "hold = []\nwhile True: hold.append(bytes(10 << 20))",
        "torch.ones(1 << 30)",
        "torch.ones(1 << 30, device='cuda')",
        "hold = []\nwhile True: hold.append(torch.ones(10 << 20, device='cuda'))",
        "import mmap; m = mmap.mmap(-1, 2 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)",
    ],
)
def test_memory_bombs(gym, bomb):
    error = gym.forward(bomb)
    assert isinstance(error, SessionError)
    assert error.kind == "out_of_memory" or "Cannot allocate memory" in str(error) or "can't allocate" in str(error)


def test_memory_spread_over_processes(gym):
    body = """
for _ in range(12):
    if os.fork() == 0:
        hold = bytearray(os.urandom(1 << 20) * 100)
        time.sleep(100)
time.sleep(100)
"""
    expect(gym.forward(body), "out_of_memory")


def test_memory_in_the_buffers_of_sockets(gym):
    """It is in no process: without a count of descriptors a job of 512 MiB took all that the machine had."""
    body = """
for _ in range(15):
    if os.fork() == 0: break
pairs = []
try:
    while True: pairs += socket.socketpair()
except OSError: pass
for end in pairs:
    end.setblocking(False)
    try:
        while True: end.send(bytes(1 << 16))
    except OSError: pass
time.sleep(100)
"""
    expect(gym.forward(body), "out_of_memory")


@pytest.mark.parametrize("loop", ["while True: pass", "while True: inputs[0] @ inputs[0]"])
def test_processor_time_that_is_used_up_is_the_candidates(gym, monkeypatch, loop):
    """The runner's or the device's: at its hard limit the kernel would send SIGKILL, as somebody from outside might."""
    usual = factory._limits
    monkeypatch.setattr(factory, "_limits", lambda settings: replace(usual(settings), cpu_s=1))
    error = gym.forward(loop, torch.zeros(512, 512))
    expect(error, "timeout")
    assert "processor time" in error.detail.message


def test_fork_bomb(gym):
    body = """
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
    roomy = ENDLESS.model_copy(update={"memory_bytes": 2 << 30})  # a fork of a CUDA build takes more
    expect(gym.forward(body, settings=roomy), "timeout")


def test_thread_bomb(gym):
    text = gym.says("while True: threading.Thread(target=time.sleep, args=[100]).start()")
    assert "can't start new thread" in text


def test_a_gigabyte_of_output(gym):
    result = gym.forward("block = b'x' * (1 << 20)\nfor _ in range(1024): os.write(1, block)", settings=SETTINGS)
    assert not isinstance(result, SessionError), result
    assert gym.last_stdout.endswith("more bytes") and len(gym.last_stdout) < 5000


def test_filling_the_scratch(gym):
    text = gym.says("while True: open(str(time.time_ns()), 'wb').write(bytes(50 << 20))")
    assert "No space left" in text or "File too large" in text


def test_files_without_contents_run_out(gym):
    """They take memory of the kernel's, which no limit of a process counts."""
    if "mount namespace" in gym.factory.health()["missing_layers"]:
        pytest.skip("scratch is no file system of its own here")
    make = "for n in range(1 << 16): os.close(os.open(str(n), os.O_CREAT | os.O_WRONLY))"
    assert "No space left" in gym.says(f"{make}\nraise OSError('made all of them')")


# ---- stays behind


def test_a_detached_daemon_dies_with_the_job(gym):
    body = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for s in range(1, 32):
            try: signal.signal(s, signal.SIG_IGN)
            except OSError: pass
        time.sleep(100)
    os._exit(0)
time.sleep(0.2)
return torch.zeros(1)
"""
    gym.forward(body)
    assert not gym.strays()


# ---- lies to the judge


@pytest.mark.parametrize(
    "forgery",
    [
        "os.write(3, b'garbage' * 100)",
        "import struct; os.write(3, struct.pack('<IQ', 1 << 31, 0))",
        """m = b'{"ok": {"outputs": []}}'; import struct; os.write(3, struct.pack('<IQ', len(m), 0) + m)""",
        "import struct, json; m = json.dumps([1]).encode(); os.write(3, struct.pack('<IQ', len(m), 0) + m)",
        "import struct; m = b'[' * 100000; os.write(3, struct.pack('<IQ', len(m), 0) + m)",
    ],
)
def test_forged_answers(gym, forgery):
    expect(gym.forward(forgery + "\nreturn torch.zeros(1)"), "tampering")


def test_a_handle_that_is_not_its_own(gym):
    error = gym.forward("return torch.zeros(1, device='cuda')", top=ANSWER.format("{'handle': 999, 'type': 'Tensor'}"))
    expect(error, "tampering", "ForgedHandle")


@pytest.mark.parametrize(
    "answer",
    [
        "{'handle': [1]}",
        "{'handle': 'x'}",
        "7",
        "{'device': 'cpu'}",
        "{'device': 'cpu', 'shape': 'ab', 'stride': []}",
        "{'value': {'f': 'x'}}",
        "{'value': {'x': {'dtype': 'float32', 'shape': [1 << 60], 'at': [0, 4]}}}",
    ],
)
def test_malformed_outputs(gym, answer):
    expect(gym.forward("return 1", top=ANSWER.format(answer)), "tampering")


def test_closed_descriptors(gym):
    expect(gym.forward("os.closerange(0, 100)\ntime.sleep(1)"), "runtime_error")


def test_overwritten_descriptors(gym):
    error = gym.forward(
        "n = os.open('/dev/null', os.O_RDWR); [os.dup2(n, fd) for fd in range(10)]\nreturn torch.zeros(1)",
        settings=SHORT,
    )
    assert isinstance(error, SessionError) and error.kind in ("runtime_error", "timeout")


@pytest.mark.parametrize(
    "message",
    [
        "b'x' * 1000",
        "__import__('struct').pack('<IQ', 5, 1 << 40) + b'[1,2]'",
        "__import__('struct').pack('<IQ', 17, 0) + b'{\"do\": \"shutdown\"}'",
    ],
)
def test_garbage_to_the_device(gym, message):
    error = gym.forward(
        f"os.write(4, {message})\ntime.sleep(0.1)\nreturn torch.zeros(1, device='cuda')", settings=SHORT
    )
    assert isinstance(error, SessionError) and error.kind in ("runtime_error", "timeout", "tampering")


def test_another_tensor_of_the_device_cannot_be_named(gym):
    body = """
from drkernel.sim.wire.commands import Ref
link = inputs[0]._link
for handle in range(1, 100):
    if handle != inputs[0]._handle:
        link.channel.download(Ref(handle))
"""
    assert "no tensor with handle" in gym.says(
        body.replace("inputs[0]", "torch.zeros(1, device='cuda')", 1).replace("inputs[0]._handle", "0")
    )


# ---- reaches for what is not its own


def test_no_network(gym):
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        text = gym.says(f"socket.create_connection(('127.0.0.1', {listener.getsockname()[1]}), 1)")
    assert "PermissionError" in text or "Network is unreachable" in text


@pytest.mark.parametrize(
    "reach",
    [
        "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
        "open('/proc/JUDGE/mem', 'rb').read(1)",
        "open('/proc/JUDGE/environ', 'rb').read(1)",
        "open('/proc/JUDGE/cmdline', 'rb').read(1)",
        "os.listdir('/proc')",
        "os.listdir('/tmp')",
        "os.listdir('/dev/shm')",
        "open('/dev/shm/drkernel-file', 'w')",
        "open('/etc/shadow').read()",
        "open('/tmp/drkernel-file', 'w')",
        "os.mkdir('/tmp/drkernel-x')",
        "os.listdir(os.path.join(os.getcwd(), '..'))",
        "open(torch.__file__, 'a')",
        "import drkernel.task; open(drkernel.task.__file__).read()",
        "os.kill(1, 0) if os.getpid() != 1 else os.kill(2, 0)",
        "os.kill(-1, 9)\nraise OSError('only itself')",
        "os.kill(JUDGE, 0)",
        "os.execv('/bin/true', ['true'])",
        "os.chroot('.')",
        "os.setuid(0)\nif os.getuid() != 0: raise OSError('no')",
        "os.memfd_create('x')",
        "open('/dev/zero')",
        "import fcntl; fcntl.lockf(open('x', 'w'), fcntl.LOCK_EX, 1)",
        "import fcntl; fcntl.flock(open(torch.__file__), fcntl.LOCK_EX)",
        "os.nice(-5)",
    ],
)
def test_out_of_reach(gym, reach):
    text = gym.says(reach.replace("JUDGE", str(os.getpid())))
    assert any(name in text for name in ("PermissionError", "FileNotFoundError", "ProcessLookupError", "OSError")), text


@pytest.mark.parametrize(
    "call",
    [
        "libc.ptrace(16, 1, 0, 0)",
        "libc.ptrace(0, 0, 0, 0)",
        "libc.process_vm_readv(os.getppid() or 1, 0, 0, 0, 0, 0)",
        "libc.unshare(0x10000000)",
        "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        "libc.prctl(1, 0, 0, 0, 0)",
        "libc.prctl(4, 1, 0, 0, 0)",
        "libc.syscall(425, 8, 0)",
        "libc.inotify_init1(0)",
        "libc.syscall(321, 0, 0, 0)",
        "libc.shmget(0, 4096, 0o1600)",
        "libc.socketpair(2, 1, 0, (ctypes.c_int * 2)())",
        "libc.socketpair(1, 2, 0, (ctypes.c_int * 2)())",
        "libc.socketpair(1, 3, 0, (ctypes.c_int * 2)())",
        "libc.mmap(0, 4096, 3, 0x21, -1, 0)",
        "libc.setsockopt(3, 1, 7, ctypes.byref(ctypes.c_int(1 << 22)), 4)",
        "libc.syscall(444, 0, 0, 1)",
        "libc.syscall(206, 1, ctypes.byref(ctypes.c_long(0)))",
    ],
)
def test_system_calls_refused(gym, call):
    top = "libc = ctypes.CDLL(None, use_errno=True)"
    text = gym.says(f"r = {call}\nraise OSError(f'returned {{r}}, {{os.strerror(ctypes.get_errno())}}')", top=top)
    assert "returned -1, Operation not permitted" in text, text


def test_other_jobs_are_out_of_sight(gym, open_session):
    with open_session() as victim:
        victim.load(
            "class ModelNew:\n    def __call__(self):\n        open('secret', 'w').write('x')",
            [],
            {},
            seed=0,
        )
        victim.call([])
        folder = Path(gym.factory._launcher._folder)
        (scratch,) = folder.glob(f"job-*-{victim.job.id}")
        pid = victim.job.pids["runner"]
        for reach in (
            f"os.listdir('{scratch}')",
            f"open('{scratch}/secret').read()",
            f"open('/proc/{pid}/mem')",
            f"os.kill({pid}, 9)",
        ):
            text = gym.says(reach.replace("JUDGE", str(os.getpid())))
            assert "PermissionError" in text or "FileNotFoundError" in text or "ProcessLookupError" in text, text
        victim.call([])


@pytest.mark.parametrize("module", ["drkernel.gym.judge.judge", "drkernel.tasks.loaders", "drkernel.gym.pools.local"])
def test_the_candidate_cannot_import_the_judge(gym, module):
    text = gym.says(f"import {module}")
    assert "No module named" in text or "PermissionError" in text


# ---- tampers with its own process: only itself is hurt


@pytest.mark.parametrize(
    "top",
    [
        "torch.allclose = lambda *a, **k: True",
        "sys.stdout = None; sys.stderr = 3",
        "import builtins; builtins.open = None",
        "time.monotonic = lambda: 0.0; time.perf_counter = lambda: 0.0",
        "import gc; gc.disable(); sys.settrace(lambda *a: None)",
        "torch.Tensor.__eq__ = lambda *a: True",
    ],
)
def test_patching_its_own_process_changes_nothing_for_the_judge(gym, top):
    result = gym.forward("return inputs[0] * 3", torch.ones(2), top=top)
    assert result.outputs[0].value.tolist() == [3, 3]
    assert result.record.operators == {"aten.mul": 1} and result.record.device.profile.elapsed_seconds > 0


def test_everything_imported_replaced_by_nonsense(gym):
    error = gym.forward(
        "import json; json.dumps = lambda *a, **k: 'x'; sys.modules.clear(); return torch.zeros(1)", settings=SHORT
    )
    assert isinstance(error, SessionError) and error.kind in ("runtime_error", "timeout", "tampering")
