"""A session as the judge drives it, on candidates that mean no harm."""

import time

import pytest
import torch
from pydantic import ValidationError

from drkernel.gym.request import EvalSettings
from drkernel.gym.session.factory import DeviceMissing, SessionFactory
from drkernel.gym.session.protocol import Plain, SessionError

LINEAR = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.linear = nn.Linear(width, width, bias=bias)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, scale=1.0):
        self.calls += 1
        return self.linear(x) * scale, x.sum(), self.calls.clone()
"""

FILL = """
import torch, triton
import triton.language as tl
@triton.jit
def fill(out_ptr, N: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, N), 7.0)
class ModelNew:
    def __call__(self):
        out = torch.empty(16, device="cuda")
        fill[(1,)](out, N=16)
        return out
"""


@pytest.fixture
def session(open_session):
    with open_session() as session:
        yield session


@pytest.fixture(params=["sim:h200", "cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def either(request, open_on):
    """Whoever holds the tensors: the device, or the runner."""
    with open_on(request.param) as session:
        yield session


def test_state_goes_over_by_name_and_outputs_come_back(either):
    loaded = either.load(LINEAR, [4], {"bias": False}, seed=1)
    assert {n: p.shape for n, p in loaded.parameters.items()} == {"linear.weight": (4, 4), "calls": ()}
    weight, x = torch.randn(4, 4), torch.randn(3, 4)
    either.load_state({"linear.weight": weight})
    result = either.call([either.put(x), 2.0])
    assert torch.allclose(result.outputs[0].value, x @ weight.T * 2, atol=1e-6)
    assert torch.allclose(result.outputs[1].value, x.sum())
    assert torch.equal(either.read(result.outputs[0].handle), result.outputs[0].value) and result.record.mutated == []
    assert [o.shape for o in result.outputs] == [(3, 4), (), ()]
    assert result.outputs[2].dtype == torch.int64 and result.outputs[0].device in ("cuda:0", either.device.name)
    assert result.record.operators["aten.sum"] == 1


def test_a_state_may_have_more_entries_than_a_call_has_outputs(session):
    source = """
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(nn.init.zeros_(__import__("torch").empty(1))) for _ in range(300))
"""
    loaded = session.load(source, [], {}, seed=0)
    session.load_state({name: torch.full((1,), float(n)) for n, name in enumerate(loaded.parameters)})
    state = session.state({name: ((1,), torch.float32) for name in loaded.parameters})
    assert [output.value.item() for output in state.values()] == list(range(300))


def test_both_sides_build_the_same_weights_from_one_seed(session):
    session.load(LINEAR, [4], {}, seed=1234)
    torch.manual_seed(1234)
    linear = torch.nn.Linear(4, 4)
    x = torch.randn(2, 4)
    assert torch.allclose(session.call([session.put(x)]).outputs[0].value, linear(x), atol=1e-6)


def test_weights_change_between_calls_in_place(either):
    either.load(LINEAR, [4], {}, seed=0)
    x = torch.randn(2, 4)
    handle = either.put(x)
    for _ in range(2):
        state = {"linear.weight": torch.randn(4, 4), "linear.bias": torch.randn(4)}
        either.load_state(state)
        expected = torch.nn.functional.linear(x, state["linear.weight"], state["linear.bias"])
        assert torch.allclose(either.call([handle]).outputs[0].value, expected, atol=1e-6)
    with pytest.raises(SessionError, match="no state named other"):
        either.load_state({"other": torch.zeros(1)})


TURNED = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2, 3))

    def _load_from_state_dict(self, state, prefix, *rest):
        super()._load_from_state_dict({prefix + "weight": state[prefix + "weight"].T}, prefix, *rest)

    def forward(self, x):
        return x @ self.weight
"""


def test_a_module_loads_weights_in_its_own_way(either):
    assert not either.load(LINEAR, [4], {}, seed=0).loads_itself
    loaded = either.load(TURNED, [], {}, seed=0)
    assert loaded.loads_itself and loaded.parameters["weight"].shape == (2, 3)
    weight, x = torch.randn(3, 2), torch.randn(5, 2)
    either.load_state({"weight": weight})
    assert torch.allclose(either.call([either.put(x)]).outputs[0].value, x @ weight.T, atol=1e-6)


def test_an_input_overwritten_keeps_its_object_and_address(either):
    either.load(
        """
class ModelNew:
    def __call__(self, x):
        now = (id(x), x.data_ptr())
        same, self.seen = getattr(self, "seen", now) == now, now
        return x * 2, same
""",
        [],
        {},
        seed=0,
    )
    handle = either.put(torch.zeros(3))
    assert either.call([handle]).outputs[0].value.tolist() == [0, 0, 0]
    either.write(handle, torch.ones(3))
    result = either.call([handle])
    assert result.outputs[0].value.tolist() == [2, 2, 2] and result.outputs[1].value is True


def test_outputs_stay_as_they_were_until_released(session):
    session.load("class ModelNew:\n    def __call__(self, x):\n        return x + 1", [], {}, seed=0)
    first = session.call([session.put(torch.zeros(5))]).outputs[0]
    second = session.call([session.put(torch.ones(5))]).outputs[0]
    assert first.storage != second.storage
    assert session.read(first.handle).tolist() == [1.0] * 5
    session.release([first.handle])
    with pytest.raises(ValueError, match="already released"):
        session.read(first.handle)
    assert session.read(second.handle).tolist() == [2.0] * 5


def test_a_number_that_equals_a_handle_can_be_told_from_it(either):
    either.load("class ModelNew:\n    def __call__(self, a, b):\n        return a.sum(), b", [], {}, seed=0)
    handle = either.put(torch.ones(4))
    result = either.call([handle, Plain(handle)])
    assert result.outputs[0].value.item() == 4 and result.outputs[1].value == handle


def test_strides_dtypes_and_empty_tensors_survive_both_ways(either):
    either.load("class ModelNew:\n    def __call__(self, *xs):\n        return [x * 1 for x in xs]", [], {}, seed=0)
    values = [
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(3, 4).T,
        torch.zeros(0, 7),
        torch.randn(4).to(torch.bfloat16),
        torch.tensor(3, dtype=torch.int16),
        torch.tensor([True, False]),
    ]
    outputs = either.call([either.put(value) for value in values]).outputs
    for value, output in zip(values, outputs, strict=True):
        assert output.dtype == (value * 1).dtype and output.stride == value.stride()
        assert torch.equal(output.value, value * 1)


def test_tensors_given_to_a_call_are_put_anywhere_in_its_arguments(either):
    source = """
class ModelNew:
    def __call__(self, pair, named, n):
        pair[1].add_(n)
        return named['x'] + pair[0], n
"""
    either.load(source, [], {}, seed=0)
    one, two, three = torch.ones(2), torch.full((2,), 2.0), torch.full((2,), 3.0)
    result = either.call([(one, two), {"x": three, "granted": None}, 5])
    assert result.outputs[0].value.tolist() == [4, 4] and result.outputs[1].value == 5
    (_, second), _, _ = result.arguments
    assert result.record.mutated == [second]
    assert either.read(second).tolist() == [7, 7] and two.tolist() == [2, 2]
    again = either.call(result.arguments)
    assert again.arguments == result.arguments and again.record.mutated == [second]
    either.write(second, two)
    assert either.call([(one, one), {"x": three}, Plain(0)]).record.mutated == []


def test_interference_is_for_one_call_and_poison_stays(session):
    session.load(FILL, [], {}, seed=0)
    assert session.call([]).outputs[0].value.tolist() == [7] * 16
    skipped = session.call([], interference="skip", poison="zero")
    assert skipped.outputs[0].value.tolist() == [0] * 16 and skipped.record.launches[0].name == "fill"
    assert session.call([]).outputs[0].value.tolist() == [7] * 16
    assert session.call([], interference="skip").outputs[0].value.tolist() == [0] * 16


def test_a_kernels_text_is_the_same_in_all_sessions(open_session):
    """The judge looks up by it what it knows of a kernel, and a candidate does not learn from it which session it is
    in."""
    kernels = []
    for _ in range(2):
        with open_session() as session:
            session.record()
            session.load(FILL, [], {}, seed=0)
            session.call([])
            kernels.append(session.tape().kernels)
    assert kernels[0] == kernels[1] and 'loc("candidate.py"' in str(*kernels[0].values())


def test_outputs_that_change_later_are_known(either):
    source = """
import torch
class ModelNew:
    def __call__(self, x):
        self.buffer = getattr(self, "buffer", torch.zeros_like(x))
        self.buffer.copy_(x)
        return self.buffer, x + 1
"""
    either.load(source, [], {}, seed=0)
    first = either.call([torch.ones(3)])
    assert either.changed() == []
    either.call([torch.zeros(3)])
    assert either.changed() == [first.outputs[0].handle]
    either.release([first.outputs[0].handle])
    assert either.changed() == []


def test_host_results_are_seen_as_such(session):
    session.load("class ModelNew:\n    def __call__(self, x):\n        return x.cpu(), 3, None, 'text'", [], {}, seed=0)
    outputs = session.call([session.put(torch.ones(2))]).outputs
    assert [o.device for o in outputs] == ["cpu", "host", "host", "host"]
    assert outputs[0].value is None and outputs[0].shape == (2,) and outputs[1].value == 3


def test_fresh_memory_holds_what_the_judge_says(session):
    session.load(
        "import torch\nclass ModelNew:\n    def __call__(self):\n        return torch.empty(64, device='cuda')",
        [],
        {},
        seed=0,
    )
    assert session.call([]).outputs[0].value.isnan().all()
    assert (session.call([], poison="zero").outputs[0].value == 0).all()
    values = session.call([], poison="random").outputs[0].value
    assert values.isfinite().all() and values.std() > 0.1


@pytest.mark.parametrize(
    "source, kind, name, line",
    [
        ("import torch\ndef f(:\n", "compile_error", "SyntaxError", 2),
        ("x = 1\nx.nothing\n", "compile_error", "AttributeError", 2),
        ("x = 1\n", "compile_error", "CompileError", None),
        ("import nothing_like_it\n", "compile_error", "ModuleNotFoundError", 1),
        (
            "class ModelNew:\n    def __init__(self):\n        raise ValueError('no')\n",
            "runtime_error",
            "ValueError",
            3,
        ),
        ("class ModelNew: pass\n", "runtime_error", "TypeError", None),
        ("class ModelNew:\n    def __init__(self):\n        bytearray(1 << 40)\n", "out_of_memory", "MemoryError", 3),
        ("raise SystemExit(0)\n", "compile_error", "SystemExit", 1),
    ],
)
def test_what_fails_to_load_is_told_with_its_line(session, source, kind, name, line):
    with pytest.raises(SessionError) as caught:
        session.load(source, [], {}, seed=0)
    assert (caught.value.kind, caught.value.detail.type, caught.value.detail.line) == (kind, name, line)


def test_an_error_in_forward_shows_only_the_candidates_frames(session):
    source = """import torch
class ModelNew:
    def __call__(self, x):
        return helper(x)
def helper(x):
    return x @ torch.zeros(7, device='cuda')
"""
    session.load(source, [], {}, seed=0)
    handle = session.put(torch.ones(3))
    with pytest.raises(SessionError) as caught:
        session.call([handle])
    detail = caught.value.detail
    assert detail.line == 6 and "in helper" in detail.traceback and "runner.py" not in detail.traceback
    assert "drkernel" not in detail.traceback and caught.value.record is not None
    with pytest.raises(SessionError):  # still there, and answers again
        session.call([handle])


def test_mixing_devices_fails_as_on_a_gpu(session):
    session.load(
        "import torch\nclass ModelNew:\n    def __call__(self, x):\n        return x + torch.zeros(3)", [], {}, seed=0
    )
    with pytest.raises(SessionError, match="same device"):
        session.call([session.put(torch.ones(3))])


def test_work_after_the_answer_is_refused_and_reported(session):
    source = """
import threading, time
class ModelNew:
    def __call__(self, x):
        def later():
            time.sleep(0.2)
            out.copy_(x)
        out = x * 0
        threading.Thread(target=later).start()
        return out
"""
    session.load(source, [], {}, seed=0)
    handle = session.put(torch.ones(3))
    for _ in range(10):  # a loaded machine may run the thread late, when another call permits it
        first = session.call([handle]).outputs[0]
        time.sleep(1.0)
        if session.call([handle]).record.device.late_work:
            break
    else:
        raise AssertionError("no late work was seen")
    assert session.read(first.handle).tolist() == [0, 0, 0]


def test_the_deadline_counts_waiting_on_the_candidate_only(gym):
    settings = EvalSettings(deadline_s=1.5)  # a busy machine adds to three calls of 0.55 s
    with gym.factory.open(settings) as session:
        session.load("import time\nclass ModelNew:\n    def __call__(self):\n        time.sleep(0.55)", [], {}, seed=0)
        time.sleep(1.6)
        session.call([])
        session.call([])
        with pytest.raises(SessionError) as caught:
            session.call([])
        assert caught.value.kind == "timeout"
        with pytest.raises(SessionError):  # it stays over
            session.set_mode(True)


def test_output_is_kept_up_to_its_limit(gym):
    assert gym.forward("print('x' * 100); sys.stderr.write('err')").outputs[0].value is None
    assert gym.last_stdout == "x" * 100 + "\nerr"
    gym.forward("print('y' * 10_000)")
    assert gym.last_stdout.startswith("y" * 4096 + "\n...") and gym.last_stdout.endswith("more bytes")


def test_the_sandbox_tells_its_layers(session):
    report = session.report()
    assert "no new privileges" in report.layers
    assert not set(report.layers) & set(report.missing)


def test_unknown_devices_are_refused_before_anything_starts():
    for device in ("sim:nothing", "tpu:0", "cuda:", "cuda:-1", "cuda:01", "sim:h200 ", "cpu"):
        with pytest.raises(ValidationError, match=r"sim:h200|sim:GPU"):
            EvalSettings(device=device)
        with SessionFactory() as factory, pytest.raises(DeviceMissing, match=r"sim:h200|sim:GPU"):
            factory.open(EvalSettings.model_construct(device=device))


def test_a_second_module_runs_without_data_while_the_first_stands_by(session):
    session.load(LINEAR, [4], {}, seed=1)
    weights = {"linear.weight": torch.randn(4, 4), "linear.bias": torch.randn(4)}
    session.load_state(weights)
    x = torch.randn(3, 4)
    before = session.call([session.put(x)])
    with session.without_data():
        assert session.load(LINEAR, [1 << 16], {}, seed=1, built_there=True).parameters["linear.bias"].shape == (
            1 << 16,
        )
        there = session.call([torch.empty(1 << 16, 1 << 16, device="meta")])
        assert there.outputs[0].value is None and there.outputs[0].shape == (1 << 16, 1 << 16)
        with pytest.raises(ValueError, match="not held by the judge"):
            session.read(before.outputs[0].handle)
        mine = {out.handle for out in (*before.outputs, *there.outputs)} | {*before.arguments, *there.arguments}
        assert len(mine) == 8, "handles of both devices differ"
    torch.testing.assert_close(session.read(before.outputs[0].handle), before.outputs[0].value)
    again = session.call([session.put(x)])
    torch.testing.assert_close(again.outputs[0].value, before.outputs[0].value)
    assert again.outputs[2].value == 2 and not session.changed()


KEEPS = """
import builtins, torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        builtins.kept = vars(builtins).get("kept", [x + 1 for _ in range(64)])
        return torch.cuda.memory_allocated()
"""


def test_tensors_of_the_first_module_may_die_while_the_second_runs(session):
    session.load(KEEPS, [], {}, seed=1)
    first = session.call([torch.ones(1 << 20)])
    with session.without_data():
        session.load("import builtins\nbuiltins.kept = None" + KEEPS, [], {}, seed=1)
        assert session.call([torch.empty(8, device="meta")]).outputs[0].value < 1 << 20
    assert session.call(first.arguments).outputs[0].value == first.outputs[0].value - (64 << 22)


def test_what_ends_while_the_second_runs_ends_the_session(session):
    session.load(LINEAR, [4], {}, seed=1)
    with pytest.raises(SessionError, match="exited"), session.without_data():
        session.load("import os\nos._exit(3)", [], {}, seed=1)
    assert session.over
