"""The device behind its sockets: what each side may do, and what it may not."""

import socket
import struct
import threading
import time

import pytest
import torch

from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.process.control_socket import DeviceControl
from drkernel.sim.process.device_server import SocketChannel, _DeviceServer
from drkernel.sim.spec import get_spec
from drkernel.sim.wire.commands import ProtocolError, Ref, UnsupportedOp
from drkernel.sim.wire.frames import ConnectionLost, receive, send


@pytest.fixture
def device():
    """A device in a thread, and its two ends: (host channel, judge's control, the host's raw socket)."""
    host, host_device = socket.socketpair()
    control, control_device = socket.socketpair()
    engine = DeviceEngine(get_spec("h200"), memory_bytes=1 << 20)
    thread = threading.Thread(target=_DeviceServer(engine, host_device, control_device).run)
    thread.start()
    judge = DeviceControl(control, get_spec("h200"), timeout=30)
    yield SocketChannel(host), judge, host
    judge.shutdown()
    control.close()
    host.close()
    thread.join(30)
    host_device.close()
    control_device.close()
    assert not thread.is_alive()


def test_an_operator_there_and_back(device):
    host, judge, _ = device
    spec = judge.put_tensor(torch.arange(6.0).reshape(2, 3))
    judge.begin_call()
    result = host.op("add.Tensor", [Ref(spec.handle), 1], {})
    record = judge.end_call(outputs=[result.handle])
    assert judge.get_tensor(result.handle).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert record.operators == {"aten.add": 1} and record.outputs[0].spec.shape == (2, 3)


def test_the_host_sees_what_it_made_or_was_granted(device):
    host, judge, _ = device
    secret = judge.put_tensor(torch.ones(3), grant=False)
    with pytest.raises(ProtocolError, match="no tensor with handle"):
        host.op("add.Tensor", [Ref(secret.handle), 1], {})


def test_breaking_the_protocol_cuts_the_host_off_but_not_the_judge(device):
    host, judge, _ = device
    spec = judge.put_tensor(torch.ones(3))
    with pytest.raises(ProtocolError):
        host.op("add.Tensor", [Ref(999), 1], {})
    with pytest.raises(ConnectionLost):
        host.op("add.Tensor", [Ref(spec.handle), 1], {})
    assert judge.get_tensor(spec.handle).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "name", ["from_file", "set_.source_Tensor", "resize_", "_nonsense", "no_such_operator", "__class__"]
)
def test_operators_outside_the_list_are_refused(device, name):
    host, _, _ = device
    with pytest.raises((UnsupportedOp, RuntimeError)):
        host.op(name, [], {})
    assert host.query("used_bytes") == 0, "and the connection lives on"


@pytest.mark.parametrize(
    "raw",
    [
        b"x" * 64,
        struct.pack("<IQ", 1 << 30, 0),
        struct.pack("<IQ", 4, 1 << 50) + b"null",
        struct.pack("<IQ", 4, 0) + b"null",
        struct.pack("<IQ", 12, 0) + b'{"do": "op"}',
        struct.pack("<IQ", 18, 0) + b'{"do": "shutdown"}',
        struct.pack("<IQ", 50_000, 0) + b"[" * 50_000,
    ],
)
def test_garbage_from_the_host_leaves_the_device_up(device, raw):
    _, judge, sock = device
    sock.sendall(raw)
    time.sleep(0.02)
    assert judge.put_tensor(torch.ones(2)).shape == (2,)


def test_between_calls_the_host_is_refused_and_counted(device):
    host, judge, _ = device
    spec = judge.put_tensor(torch.zeros(3))
    judge.begin_call()
    assert judge.end_call(freeze=True).late_work == []
    with pytest.raises(RuntimeError, match="between calls"):
        host.op("add_.Tensor", [Ref(spec.handle), 1], {})
    assert judge.get_tensor(spec.handle).tolist() == [0, 0, 0]
    judge.begin_call()
    host.op("add_.Tensor", [Ref(spec.handle), 1], {})
    assert judge.end_call().late_work == ["op add_.Tensor"]


def test_outputs_outlive_the_host_until_released(device):
    host, judge, _ = device
    judge.begin_call()
    spec = host.op("full.default", [[4], 7.0], {})
    judge.end_call(outputs=[spec.handle])
    host.free(spec.handle)
    host.query("used_bytes")
    assert judge.get_tensor(spec.handle).tolist() == [7.0] * 4
    judge.free(spec.handle)
    with pytest.raises(ValueError, match="already released"):
        judge.get_tensor(spec.handle)
    assert host.query("used_bytes") == 0


def test_device_memory_is_bounded(device):
    host, judge, _ = device
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        host.op("empty.memory_format", [[1 << 20]], {"dtype": torch.float32})
    with pytest.raises(torch.OutOfMemoryError):
        judge.put_tensor(torch.zeros(1 << 20))
    assert host.query("used_bytes") == 0


def test_poison_follows_the_judge(device):
    host, judge, _ = device
    for policy, right in (("nan", torch.isnan), ("zero", lambda t: t == 0), ("random", torch.isfinite)):
        judge.begin_call(poison=policy)
        spec = host.op("empty.memory_format", [[64]], {"dtype": torch.float32})
        judge.end_call(outputs=[spec.handle])
        assert right(judge.get_tensor(spec.handle)).all()
    with pytest.raises(ValueError, match="nan"):
        judge.begin_call(poison="other")


def test_overwriting_keeps_handle_and_address(device):
    host, judge, _ = device
    spec = judge.put_tensor(torch.zeros(2, 3).T.contiguous().T)
    judge.overwrite(spec.handle, torch.ones(2, 3))
    assert judge.get_tensor(spec.handle).tolist() == [[1] * 3] * 2
    assert host.op("sum.default", [Ref(spec.handle)], {}).shape == ()


def test_a_slow_sender_does_not_stretch_the_deadline():
    ours, theirs = socket.socketpair()

    def drip():
        try:
            for byte in struct.pack("<IQ", 1000, 0) + b"x" * 1000:
                theirs.sendall(bytes([byte]))
                time.sleep(0.02)
        except OSError:
            return

    thread = threading.Thread(target=drip)
    thread.start()
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        receive(ours, deadline=start + 0.3)
    assert thread.is_alive(), "the message was waited for"
    ours.close()
    thread.join()
    theirs.close()


def test_an_announced_giant_takes_no_memory():
    ours, theirs = socket.socketpair()
    theirs.sendall(struct.pack("<IQ", 2, 7 << 30) + b"{}" + b"x" * 10)
    with pytest.raises(TimeoutError):
        receive(ours, deadline=time.monotonic() + 0.1)
    with pytest.raises(ProtocolError, match="over the limit"):
        theirs.sendall(struct.pack("<IQ", 100, 0))
        ours.close()
        ours, theirs = socket.socketpair()
        theirs.sendall(struct.pack("<IQ", 100, 0))
        receive(ours, max_header=10)
    theirs.close()
    ours.close()


def test_large_messages_cross_whole():
    ours, theirs = socket.socketpair()
    data = bytes(range(256)) * 20_000
    thread = threading.Thread(target=send, args=(theirs, {"n": 1}, data))
    thread.start()
    header, payload = receive(ours)
    thread.join()
    assert header == {"n": 1} and payload == data
    ours.close()
    theirs.close()
