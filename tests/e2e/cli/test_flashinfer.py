"""FlashInfer-Bench's trace sets as tasks: what they compute, what they carry, what is refused by name."""

import json
import subprocess

import pytest
import torch
from safetensors.torch import save_file

from drkernel.tasks.errors import TaskError
from drkernel.tasks.flashinfer import candidate_of
from drkernel.tasks.loaders import load_task, load_tasks
from drkernel.tasks.reference import load_reference
from farm import PYTHON

GEMM = {
    "name": "gemm_n96_k64",
    "op_type": "gemm",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 96}, "K": {"type": "const", "value": 64}},
    "inputs": {"A": {"shape": ["M", "K"], "dtype": "float16"}, "B": {"shape": ["N", "K"], "dtype": "float16"}},
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(A, B):\n    return {'C': A @ B.T}",
}
SCALE = {
    "name": "scale_rows",
    "op_type": "misc",
    "axes": {"rows": {"type": "var"}, "pages": {"type": "var"}, "twice": {"type": "expr", "expression": "2 * rows"}},
    "inputs": {
        "x": {"shape": ["pages", "twice"], "dtype": "float32"},
        "pick": {"shape": ["rows"], "dtype": "int32"},
        "by": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "twice"], "dtype": "float32"}, "n": {"shape": ["rows"], "dtype": "int32"}},
    "reference": "def run(x, pick, by):\n    return x[pick.long()] * by, pick + 1",
}
RANDOM = {"type": "random"}


@pytest.fixture
def traces(tmp_path):
    """A trace set: a product with two workloads, and a gather whose indices lie in a file."""

    def write(definition, *workloads):
        (tmp_path / "definitions" / definition["op_type"]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "workloads").mkdir(exist_ok=True)
        name = definition["name"]
        (tmp_path / "definitions" / definition["op_type"] / f"{name}.json").write_text(json.dumps(definition))
        lines = [json.dumps({"definition": name, "workload": each, "solution": None}) for each in workloads]
        (tmp_path / "workloads" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        return tmp_path

    save_file({"pick": torch.tensor([4, 0, 2], dtype=torch.int32)}, tmp_path / "a.safetensors")
    save_file({"pick": torch.zeros(300_000, dtype=torch.int32)}, tmp_path / "large.safetensors")
    write(GEMM, *({"uuid": f"{m}-0", "axes": {"M": m}, "inputs": {"A": RANDOM, "B": RANDOM}} for m in (7, 300)))
    tensors = {"type": "safetensors", "tensor_key": "pick"}
    inputs = {"x": RANDOM, "by": {"type": "scalar", "value": 0.5}}
    write(
        SCALE,
        {
            "uuid": "small",
            "axes": {"rows": 3, "pages": 5},
            "inputs": inputs | {"pick": tensors | {"path": "a.safetensors"}},
        },
        {
            "uuid": "big",
            "axes": {"rows": 9, "pages": 5},
            "inputs": inputs | {"pick": tensors | {"path": "large.safetensors"}},
        },
        {"uuid": "gone", "axes": {"rows": 9, "pages": 5}, "inputs": inputs | {"pick": tensors | {"path": "none"}}},
    )
    return tmp_path


def test_a_task_a_workload(traces):
    names = [task.id for task in load_tasks(f"flashinfer:{traces}")]
    assert names == ["flashinfer/gemm_n96_k64/7-0", "flashinfer/gemm_n96_k64/300-0", *(
        f"flashinfer/scale_rows/{uuid}" for uuid in ("small", "big", "gone"))]  # fmt: skip
    task = load_task(f"flashinfer:{traces}/gemm_n96_k64/300")
    assert task.precision == "fp16" and task.tags == ("gemm",)
    reference = load_reference(task.reference)
    a, b = reference.draw_inputs(0)
    assert a.shape == (300, 64) and a.dtype == torch.float16 and a.float().std() > 0.9
    assert torch.equal(reference.build(0)(a, b), a @ b.T)


def test_indices_and_numbers_are_the_workloads_own(traces):
    task = load_task(f"flashinfer:{traces}/scale_rows/small")
    reference = load_reference(task.reference)
    x, pick, by = reference.draw_inputs(0)
    assert pick.tolist() == [4, 0, 2] and pick.dtype == torch.int32 and by == 0.5 and x.shape == (5, 6)
    y, n = reference.build(0)(x, pick, by)
    assert torch.equal(y, x[[4, 0, 2]] / 2) and n.tolist() == [5, 1, 3]
    assert reference.fixed_inputs == {"pick"} and task.precision == "fp32"


@pytest.mark.parametrize(("uuid", "message"), [("big", "1,200,000 bytes"), ("gone", "cannot read .*none")])
def test_what_a_task_cannot_carry_is_the_reason_of_its_own_refusal(traces, uuid, message):
    reference = load_reference(load_task(f"flashinfer:{traces}/scale_rows/{uuid}").reference)
    with pytest.raises(TaskError, match=message):
        reference.draw_inputs(0)


@pytest.mark.parametrize(("spec", "change", "message"), [
    ("/gemm_n96_k6", None, "no definition 'gemm_n96_k6'; did you mean gemm_n96_k64"),
    ("/gemm_n96_k64/8", None, "names no workload"),
    ("/workloads", None, "no definition 'workloads'"),
    ("", ("definitions/gemm/gemm_n96_k64.json", '"axes"', '"axs"'), "definition, field axes: Field required"),
    ("", ("definitions/gemm/gemm_n96_k64.json", '"M", "K"', '"M", "Q"'), "axis 'Q' that is not among the axes"),
    ("", ("workloads/gemm_n96_k64.jsonl", '"M": 7', '"L": 7'), "nothing says how long the axis 'M' is"),
    ("", ("workloads/gemm_n96_k64.jsonl", '"random"', '"normal"'), "line, field workload.inputs.A.type"),
])  # fmt: skip
def test_mistakes_name_file_and_field(traces, spec, change, message):
    if change is not None:
        path = traces / change[0]
        path.write_text(path.read_text().replace(change[1], change[2], 1))
    with pytest.raises(TaskError, match=message):
        load_tasks(f"flashinfer:{traces}{spec}")


def test_no_trace_set_is_said_to_be_none(tmp_path):
    with pytest.raises(TaskError, match="no folder 'definitions'"):
        load_tasks(f"flashinfer:{tmp_path}")


KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def product(a, b, c, M, N, K: tl.constexpr, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    n = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    k = tl.arange(0, K)
    x = tl.load(a + m * K + k[None, :], mask=m < M, other=0.0)
    y = tl.load(b + n * K + k[:, None], mask=n < N, other=0.0)
    tl.store(c + m * N + n, tl.dot(x, y).to(tl.float16), mask=(m < M) & (n < N))

def run(A, B):
    (M, K), N = A.shape, B.shape[0]
    C = torch.empty(M, N, device=A.device, dtype=A.dtype)
    product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](A, B, C, M, N, K, 32)
    return {"C": C}
"""
SOLUTION = {
    "name": "mine",
    "definition": "gemm_n96_k64",
    "author": "me",
    "spec": {"language": "triton", "target_hardware": [], "entry_point": "main.py::run"},
    "sources": [{"path": "main.py", "content": KERNEL}],
}


def test_a_solution_is_graded_from_the_command_line(traces):
    (traces / "mine.json").write_text(json.dumps(SOLUTION))
    command = [PYTHON, "-m", "drkernel", "eval", f"flashinfer:{traces}/gemm_n96_k64/300"]
    done = subprocess.run([*command, traces / "mine.json", "--json"], capture_output=True, text=True)
    verdict = json.loads(done.stdout)
    assert done.returncode == 0 and verdict["status"] == "correct" and verdict["speedup"]["value"] > 0


@pytest.mark.parametrize(("change", "message"), [
    ({"spec": SOLUTION["spec"] | {"language": "cuda"}}, "in cuda is not graded"),
    ({"sources": [*SOLUTION["sources"], {"path": "b.py", "content": ""}]}, "of one file is graded"),
    ({"spec": SOLUTION["spec"] | {"entry_point": "main.py"}}, "of one file"),
    ({"sources": None}, "solution, field sources"),
])  # fmt: skip
def test_what_is_no_solution_of_ours_is_refused_by_name(change, message):
    with pytest.raises(TaskError, match=message):
        candidate_of(json.dumps(SOLUTION | change), "mine.json")
