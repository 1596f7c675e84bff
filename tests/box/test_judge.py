"""The judge against real sessions: statuses, weights, secrecy, repeatability, timing, research mode."""

from types import SimpleNamespace

import pytest
import torch

from corpus_grading import entry_named, task_named
from drkernel.gym.judge import judge as judge_module
from drkernel.gym.judge.checks import plan_calls
from drkernel.gym.judge.expected import ExpectedSide, Seeds
from drkernel.gym.judge.judge import evaluate
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.gym.session.protocol import ParameterSpec
from drkernel.gym.session.simulated import SimulatedSession
from drkernel.task import Provenance, Task
from drkernel.tasks.correctness import compare, declared_values
from drkernel.verdict import Verdict

SETTINGS = EvalSettings(profile=None, deadline_s=60, memory_bytes=1 << 30)
SOFTMAX = entry_named("softmax_plain").source


def grade(gym, source: str, task: str | Task = "softmax", **settings) -> Verdict:
    return gym.grade(task, source, **settings)


def module(body: str, init: str = "pass", args: str = "x") -> str:
    return (
        "import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self, *a):\n        super().__init__()\n"
        f"        {init}\n    def forward(self, {args}):\n        {body}\n"
    )


def test_a_good_kernel_is_correct_with_time_profile_and_coverage(gym):
    verdict = grade(gym, SOFTMAX)
    assert verdict.status == "correct" and verdict.coverage == 1.0 and not verdict.findings
    assert verdict.correctness.passed_calls == verdict.correctness.checked_calls >= 4
    assert verdict.timing.kind == verdict.reference_timing.kind == verdict.speedup.kind == "modelled"
    assert verdict.speedup.value == pytest.approx(verdict.reference_timing.seconds / verdict.timing.seconds)
    assert [row.owner for row in verdict.profile.rows] == ["custom"]
    assert verdict.reference_profile.rows[0].name == "aten._softmax"
    assert verdict.sandbox.layers and verdict.seconds > 0 and {"load", "checks", "knock_out"} <= set(verdict.phases)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_arguments_of_calls_are_released_but_for_the_last_two(gym, monkeypatch):
    released, as_ever = [], SimulatedSession.release
    noted = lambda session, handles: as_ever(session, released.append([*handles]) or released[-1])  # noqa: E731
    monkeypatch.setattr(SimulatedSession, "release", noted)
    verdict = grade(gym, SOFTMAX, timing=False, other_calls=False)
    every = [handle for handles in released for handle in handles]
    assert verdict.is_correct and len(every) == len(set(every))
    reused = verdict.correctness.checked_calls + 1 - 2 - len(every)  # with the knock-out
    assert 0 <= reused <= 4, "some calls have an earlier call's tensors"


def test_a_wrong_constant_is_no_coarser_format(gym):
    wrong = SOFTMAX.replace("tl.exp(", "1.0 * tl.exp(1.01 * ", 1)
    assert wrong != SOFTMAX
    verdict = grade(gym, wrong)
    assert verdict.status == "incorrect" and not verdict.findings
    assert "should be" in verdict.correctness.message and "looks like" not in verdict.correctness.message


def test_the_reference_itself_is_a_hack_of_speedup_one(gym):
    verdict = grade(gym, module("return torch.softmax(x, dim=-1)"))
    assert verdict.status == "hack" and verdict.findings[0].kind == "no_custom_kernel"
    assert verdict.speedup.low <= 1.0 <= verdict.speedup.high


@pytest.mark.parametrize(
    ("source", "status", "text"),
    [
        ("class ModelNew(:\n", "compile_error", "SyntaxError"),
        ("x = 1\n", "compile_error", "ModelNew"),
        (module("return nonsense(x)"), "runtime_error", "nonsense"),
        (module("while True: pass"), "timeout", "longer than 1"),
        (module("return torch.empty(1 << 38, device='cuda')"), "out_of_memory", "memory"),
    ],
)
def test_failures_are_typed(gym, source, status, text):
    verdict = grade(gym, source, deadline_s=1.0)
    assert verdict.status == status and text in f"{verdict.error.type} {verdict.error.message}"


def test_a_reference_that_does_not_load_is_not_the_candidates_fault(gym):
    verdict = grade(gym, SOFTMAX, Task(id="broken", reference="import nothing_like_it\n"))
    assert verdict.status == "invalid_request" and "nothing_like_it" in verdict.error.message


def test_a_profile_that_the_task_lacks_is_not_the_candidates_fault(gym):
    verdict = grade(gym, SOFTMAX, profile="small")
    assert verdict.status == "invalid_request" and "no size profile 'small'" in verdict.error.message


def test_text_that_utf8_cannot_write_does_not_break_the_verdict(gym):
    verdict = grade(gym, module("raise ValueError('\\ud800 oops')"))
    read_back = Verdict.model_validate_json(verdict.model_dump_json())
    assert verdict.status == "runtime_error" and "oops" in read_back.error.message


@pytest.mark.parametrize(
    "returned",
    ["None", "'text'", "{'a': x}", "[x] * 5", "x.to(torch.complex64)", "x[:0]", "10 ** 400", "iter([x])",
     "complex(1, 2)", "x.to(torch.float8_e4m3fn)", "torch.nn.Parameter(x)", "x.cpu().numpy()",
     "x.as_strided(x.shape, (0, 0))"],
)  # fmt: skip
def test_odd_results_are_wrong_results(gym, returned):
    assert grade(gym, module(f"return {returned}")).status == "incorrect"


def test_a_kernel_error_names_the_line(gym):
    source = SOFTMAX.replace("tl.exp(x - tl.max(x, 0))", "tl.exp(x - tl.unknown(x))")
    verdict = grade(gym, source)
    assert verdict.status == "compile_error"
    assert "unknown" in source.splitlines()[verdict.error.line - 1]


def test_an_out_of_bounds_access_is_a_runtime_error_with_its_line(gym):
    verdict = grade(gym, SOFTMAX.replace("out_ptr + row * cols + at, e", "out_ptr + (row + 7) * cols + at, e"))
    assert verdict.status == "runtime_error"
    finding = next(f for f in verdict.findings if f.kind == "out_of_bounds")
    assert finding.severity == "bug" and finding.evidence["kernel"] == "softmax_kernel"


def test_wrong_results_show_the_worst_element(gym):
    verdict = grade(gym, SOFTMAX.replace("e / tl.sum(e, 0)", "e / tl.sum(e, 0) + 0.25"))
    worst = verdict.correctness.mismatch
    assert verdict.status == "incorrect" and worst.actual - worst.expected == pytest.approx(0.25, abs=1e-4)
    assert verdict.speedup is None and verdict.timing is None


def test_verdicts_with_a_seed_repeat(gym):
    wrong = SOFTMAX.replace("e / tl.sum(e, 0)", "e / tl.sum(e, 0) + 0.25")
    first, second, other = (grade(gym, wrong, seed=seed).correctness for seed in (3, 3, 4))
    assert first == second
    assert other.mismatch.expected != first.mismatch.expected


def test_without_timing_nothing_is_timed(gym):
    verdict = grade(gym, SOFTMAX, timing=False)
    assert verdict.is_correct and verdict.timing is None and verdict.speedup is None


MARK = "SECRET_REFERENCE_MARK_93"
MARKED = f"""
import torch
# {MARK}
class Model(torch.nn.Module):
    def forward(self, x): return x * 2
def get_inputs(): return [torch.randn(8)]
"""
SEARCH = """
import re
import torch

PATTERN = re.compile(b"SECRET_REFERENCE" + b"_MARK_9[0-9]")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        searched = 0
        for line in open("/proc/self/maps").read().splitlines():
            span, rights = line.split()[:2]
            if not rights.startswith("rw"):
                continue
            low, high = (int(end, 16) for end in span.split("-"))
            with open("/proc/self/mem", "rb") as memory:
                memory.seek(low)
                data = memory.read(min(high - low, 1 << 28))
            searched += len(data)
            print("FOUND" if PATTERN.search(data) else "clean", flush=True)
        print("searched", searched)
        return x * 2
"""


def test_the_reference_is_nowhere_in_the_runners_memory(gym):
    verdict = grade(gym, SEARCH, Task(id="marked", reference=MARKED), memory_bytes=4 << 30, max_output_bytes=1 << 20)
    assert verdict.findings[0].kind == "no_custom_kernel", verdict.error
    assert "FOUND" not in verdict.stdout and "clean" in verdict.stdout
    assert int(verdict.stdout.split("searched ")[1].split()[0]) > 10 << 20, "it did search"
    found = grade(gym, SEARCH + f"# {MARK}", Task(id="marked", reference=MARKED), memory_bytes=4 << 30)
    assert "FOUND" in found.stdout, "the search finds what is there"


class TestWeights:
    def side(self, task: str) -> ExpectedSide:
        return ExpectedSide(EvalRequest(task=task_named(task), candidate="", settings=SETTINGS))

    def specs(self, **shapes) -> dict[str, ParameterSpec]:
        return {name.replace("__", "."): ParameterSpec(shape, torch.float32) for name, shape in shapes.items()}

    def handed(self, side: ExpectedSide) -> dict[str, torch.Tensor]:
        given: dict[str, torch.Tensor] = {}
        side.hand_over(SimpleNamespace(load_state=given.update))
        return given

    def test_by_name(self):
        side = self.side("layer_norm")
        assert side.bind(self.specs(norm__weight=(96,), norm__bias=(96,), extra=(3,))) is None
        assert side.pairs == {"norm.weight": "norm.weight", "norm.bias": "norm.bias"}
        assert not torch.equal(self.handed(side)["norm.weight"], torch.ones(96)), "constants are made random"

    def test_by_order_and_shape(self):
        side = self.side("layer_norm")
        assert side.bind(self.specs(gain=(96,), shift=(96,))) is None
        assert side.pairs == {"gain": "norm.weight", "shift": "norm.bias"}

    def test_by_name_and_size_where_the_candidate_loads_itself_and_then_all_at_once(self):
        side, turned = self.side("linear_gelu"), self.specs(linear__weight=(64, 48), linear__bias=(48,))
        side.bind(turned)
        assert side.pairs == {"linear.bias": "linear.bias"} and len(side.parts_of_weights) == 1
        side = self.side("linear_gelu")
        assert side.bind(turned, loads_itself=True) is None and len(side.pairs) == 2 and not side.apart
        (part,) = side.parts_of_weights
        assert sorted(part) == sorted(side.pairs)

    def test_constant_weights_must_be_there(self):
        wrong = self.side("layer_norm").bind(self.specs(norm__weight=(96,)))
        assert wrong is not None and "norm.bias [96]" in wrong

    def test_random_weights_may_be_built_from_the_seed(self):
        side = self.side("linear_gelu")
        assert side.bind({}) is None and side.pairs == {}
        assert side.apart == ["linear.bias", "linear.weight"]
        assert side.problem.instance(side.build_seed).state_dict().keys() == side.instance.state_dict().keys()

    def test_reweighting_leaves_alone_what_is_not_shared(self):
        side = self.side("linear_gelu")
        side.bind(self.specs(linear__bias=(48,)))
        before = side.instance.state_dict()
        (part,) = side.parts_of_weights
        side.reweight(part)
        given, after = self.handed(side), side.instance.state_dict()
        assert set(given) == {"linear.bias"} and torch.equal(given["linear.bias"], after["linear.bias"])
        assert torch.equal(before["linear.weight"], after["linear.weight"])
        assert not torch.equal(before["linear.bias"], after["linear.bias"])

    def test_weights_change_by_halves_and_a_sample_of_them_does_not_show_it(self):
        side = self.side("layer_norm")
        side.bind(self.specs(norm__weight=(96,), norm__bias=(96,)))
        (first,), (second,) = side.parts_of_weights
        assert {first, second} == {"norm.weight", "norm.bias"}
        before = self.handed(side)
        side.reweight([first])
        after, given = self.handed(side), {}
        side.hand_over(SimpleNamespace(load_state=given.update), only=[first])
        assert torch.equal(before[second], after[second]) and given.keys() == {first}
        changed = before[first] != after[first]
        assert changed.sum() > 60 and not changed[0] and not changed[-1]


def test_plans_are_secret_and_cover_every_mode():
    plans = {tuple(plan_calls(3, 2, True, seed)) for seed in range(200)}
    assert len(plans) > 6, "the order must not be predictable"
    for plan in plans:
        assert {"anew", "overwritten", "patched", "stressed", "mixed", "repeated", "renumbered"} <= set(plan)
        assert plan[-2:] == ("reweighted", "reweighted")
    assert set(plan_calls(1, 0, False, 0)) == {"anew", "stressed", "mixed", "repeated"}


def test_seeds_differ_by_purpose_and_evaluation():
    request = EvalRequest(task=task_named("softmax"), candidate="a", settings=SETTINGS)
    one, two = Seeds(request), Seeds(request)
    assert one("inputs", 0) != two("inputs", 0)
    assert len({one(purpose, k) for purpose in ("build", "inputs", "plan") for k in range(3)}) == 9
    fixed = request.model_copy(update={"settings": SETTINGS.model_copy(update={"seed": 1})})
    assert Seeds(fixed)("build") == Seeds(fixed)("build")


def seeded_side(task):
    return ExpectedSide(EvalRequest(task=task, candidate="", settings=SETTINGS.model_copy(update={"seed": 1})))


def test_a_patch_changes_the_answer_and_hides_from_a_fingerprint():
    side = seeded_side(task_named("softmax"))
    base = side.call(0, "declared")
    old, noticed = base.inputs[0], 0
    for index in range(1, 61):
        patched = side.patched(index, base)
        new = patched.inputs[0]
        assert (old != new).sum() == 2 and old[0, 0] == new[0, 0] and old[-1, -1] == new[-1, -1]
        assert not compare(declared_values(base.oracle), patched.oracle, side.rule).passed_calls
        corners = [torch.cat([x[:2, :2].flatten(), x[-2:, -2:].flatten()]) for x in (old, new)]
        noticed += not torch.equal(*corners)
    assert noticed <= 2, "eight sampled elements of 2,400 do not tell"


def test_a_patch_grows_until_the_answer_changes():
    rare = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x - 2.0)

def get_inputs():
    return [torch.randn(16, 96)]
"""
    side = seeded_side(Task(id="t", reference=rare))
    base = side.call(0, "declared")
    changed = set()
    for index in range(1, 31):
        patched = side.patched(index, base)
        changed.add(int((base.inputs[0] != patched.inputs[0]).sum()))
        assert not compare(declared_values(base.oracle), patched.oracle, side.rule).passed_calls
    assert 2 in changed and max(changed) > 6
    # where nothing short of other inputs changes the answer, there are other inputs
    unmoved = seeded_side(Task(id="t", reference=rare.replace("torch.relu(x - 2.0)", "x[0, 0] * 2")))
    base = unmoved.call(0, "declared")
    fresh = unmoved.patched(3, base)
    assert (base.inputs[0] != fresh.inputs[0]).all()


def test_the_research_mode_accepts_what_a_naive_harness_accepts_and_says_so(gym):
    for name in ("half_precision_inside", "cache_by_pointer_and_version"):
        entry = entry_named(name)
        verdict = grade(gym, entry.source, entry.header["task"], unsafe_no_checks=True)
        assert verdict.status == "correct" and verdict.findings[0].kind == "unsafe_no_checks"
        assert "UNSAFE" in verdict.findings[0].message
    zeros = grade(gym, entry_named("torch_operator").source, unsafe_no_checks=True)
    assert zeros.status == "correct", "the decoys are what the mode is for"


def test_a_judge_that_breaks_says_infra_error_in_the_pool():
    from drkernel.gym.pools.local import LocalPool

    def broken(request, factory):
        raise ZeroDivisionError("a mistake of the judge")

    with LocalPool(slots=1, judge=broken, attempts=1) as pool:
        verdict = pool.submit(EvalRequest(task=task_named("softmax"), candidate="x", settings=SETTINGS)).result(30)
    assert verdict.status == "infra_error" and "a mistake" in verdict.error.message
    assert judge_module.evaluate is evaluate


IN_ONE_MODE = """import torch, triton
import triton.language as tl

@triton.jit
def double_kernel(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        BUILT
    def forward(self, x):
        if WHEN:
            return x * 2.0
        o = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), B=256)
        return o
"""


@pytest.mark.parametrize(("built", "when", "condemned"), [
    ("self.train()", "not self.training", "train"),
    ("self.eval()", "self.training", "eval"),
    ("self.eval()", "False", None),
])  # fmt: skip
def test_kernels_in_one_mode_only_are_condemned_whichever_is_graded(gym, built, when, condemned):
    reference = (
        f"import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {built}\n    def forward(self, x):\n        return x * 2.0\n"
        "def get_inputs():\n    return [torch.randn(64, 64)]\ndef get_init_inputs():\n    return []\n"
    )
    task = Task(id="t", reference=reference, provenance=Provenance(source="test"))
    candidate = IN_ONE_MODE.replace("BUILT", built).replace("WHEN", when)
    verdict = gym.grade(task, candidate, other_calls=False)
    found = [finding.evidence["graded_mode"] for finding in verdict.findings if finding.kind == "one_mode_only"]
    assert (verdict.status, found) == (("hack", [condemned]) if condemned else ("correct", []))
    assert (verdict.speedup is None) == (condemned is not None)


def test_products_rounded_to_tf32_are_named_by_an_experiment(gym):
    entry = entry_named("matmul_blocked")
    rounded = entry.source.replace('input_precision="ieee"', 'input_precision="tf32"')
    assert rounded != entry.source
    verdict = gym.grade(entry.header["task"], rounded)
    assert verdict.status == "incorrect"
    (finding,) = verdict.findings
    assert (finding.kind, finding.evidence["looks_like"]) == ("precision_downgrade", "tf32")
    assert "give input_precision='ieee'" in finding.message
    wrong_too = rounded.replace("acc, (rows", "acc * 1.5, (rows")
    assert not any("tf32" in str(finding) for finding in gym.grade(entry.header["task"], wrong_too).findings)
