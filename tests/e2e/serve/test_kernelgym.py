"""The routes of KernelGYM's server, as its released client uses them: submit, poll, fetch; and what the fields mean."""

import time

import httpx
import pytest

from drkernel.gym.pools.local import LocalPool
from drkernel.serve.kernelgym import EvaluateBody, to_request
from service_kit import CountingPool

REFERENCE = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0

def get_inputs():
    return [torch.randn(16, 64)]

def get_init_inputs():
    return []
"""

KERNEL = """import torch
import triton
import triton.language as tl

@triton.jit
def fused(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(o + i, tl.maximum(v, 0.0) * 2.0 + 1.0, mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        fused[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), B=256)
        return o
"""

DECOY = KERNEL.replace("return o", "return torch.relu(x) * 2.0 + 1.0")
BROKEN = KERNEL.replace("tl.maximum(", "tl.maxi(")
WRONG = KERNEL.replace("+ 1.0", "+ 1.5")


def payload(task_id, kernel=KERNEL, **fields):
    return {
        "task_id": task_id, "reference_code": REFERENCE, "kernel_code": kernel, "backend": "triton",
        "num_correct_trials": 2, "num_perf_trials": 10, "num_warmup": 3, "timeout": 120, "priority": "normal",
        "entry_point": "Model", "toolkit": "kernelbench", "is_valid": False, "use_reference_cache": True,
        "enable_profiling": True, **fields,
    }  # fmt: skip


def submit_and_poll(url, body):
    """What the released client does."""
    answer = httpx.post(f"{url}/evaluate", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    deadline = time.time() + 60
    while time.time() < deadline:
        status = httpx.get(f"{url}/status/{body['task_id']}").json()
        if status["status"] in ("completed", "failed", "timeout", "cancelled"):
            if status["status"] == "completed":
                result = httpx.get(f"{url}/results/{body['task_id']}").json()
                return {**result, "status": "completed"}
            return {"status": status["status"], "error_message": status.get("error_message")}
        time.sleep(0.1)
    raise AssertionError("no end")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from drkernel.serve.app import make_app
    from drkernel.serve.service import Service, ServiceTerms
    from drkernel.serve.store import Store
    from service_kit import LiveServer

    store = Store(tmp_path_factory.mktemp("kernelgym") / "s.sqlite")
    server = LiveServer(make_app(Service(store, LocalPool(slots=1), slots=1, terms=ServiceTerms(grace_s=2.0))))
    yield server
    server.stop()
    store.close()


@pytest.fixture(scope="module")
def results(server):
    kernels = {"good": KERNEL, "decoy": DECOY, "broken": BROKEN, "wrong": WRONG}
    return {name: submit_and_poll(server.url, payload(name, kernel)) for name, kernel in kernels.items()}


def test_a_good_kernel_is_rewarded_with_all_that_the_client_reads(results):
    good = results["good"]
    assert (good["compiled"], good["correctness"], good["decoy_kernel"]) == (True, True, False)
    assert good["speedup"] > 1.2
    assert good["reference_runtime"] / good["kernel_runtime"] == pytest.approx(good["speedup"])
    metadata = good["metadata"]
    assert metadata["num_custom_kernels"] == metadata["num_total_kernels"] == 1
    covered = metadata["custom_kernel_cuda_time_in_profiling_us"] / metadata["total_kernel_run_time_in_profiling_us"]
    assert covered == pytest.approx(1.0)
    assert metadata["timing_kind"] == "modelled"
    (kernel,) = metadata["profiling"]["kernels"]
    assert (kernel["name"], kernel["count"]) == ("fused", 1) and kernel["cuda_time_us"] > 0 < kernel["cpu_time_us"]
    assert metadata["hardware"] == "NVIDIA H200" and metadata["triton_profiler_matches"] == ["fused"]
    assert metadata["custom_kernel_cuda_time_coverage"].endswith("Coverage: 100.00%")
    assert metadata["checked_at"].startswith("x float32[") and metadata["timed_at"] and metadata["untimed"] is None


def test_a_decoy_is_marked_and_earns_nothing(results):
    decoy = results["decoy"]
    assert decoy["decoy_kernel"] is True and decoy["correctness"] is False and decoy["speedup"] == 0.0
    assert "decoy_kernel" in decoy["error_message"]


def test_failures_say_why(results):
    assert results["broken"]["status"] == "failed" and "maxi" in results["broken"]["error_message"]
    assert results["broken"]["error_message"].startswith("CompilationError: ")
    assert results["wrong"]["correctness"] is False and results["wrong"]["error_message"]


def test_other_entry_points_and_unknown_tasks(serving):
    body = EvaluateBody.model_validate(payload("x", entry_point="Net"))
    request = to_request(body, "sim:h100")
    assert request.task.reference.endswith("Model = Net\n") and request.candidate.endswith("ModelNew = NetNew\n")
    server = serving(CountingPool())
    assert httpx.get(server.url + "/status/nobody").status_code == 404
    assert httpx.post(server.url + "/evaluate", json=payload("x", workflow="kernel_simple")).status_code == 422
    assert httpx.post(server.url + "/evaluate", json=payload("x", entry_point="a b")).status_code == 422
    batch = {"batch_id": "b", "tasks": [payload("one"), payload("two", WRONG)]}
    answer = httpx.post(server.url + "/evaluate/batch", json=batch, timeout=60).json()
    assert (answer["total_tasks"], answer["completed_tasks"]) == (2, 2)


def test_a_workflow_of_kernelbench_answers_as_an_evaluation_does(server):
    """As in the README of KernelGYM: inputs are made on the GPU, and whatever is not said has its default there."""
    on_gpu = {"reference_code": REFERENCE.replace("64)]", "64, device='cuda')]"), "kernel_code": KERNEL}
    body = {"workflow": "kernelbench", "task_id": "w-1", "payload": {**on_gpu, "backend": "Triton", "uuid": "u-7",
            "toolkit": "kernelbench", "use_reference_cache": True, "device": "cuda:0"}}  # fmt: skip
    answer = httpx.post(server.url + "/workflow/submit", json=body, timeout=120).json()
    assert (answer["task_id"], answer["status"], answer["error_code"]) == ("w-1", "completed", None)
    told = answer["result"]
    assert told["compiled"] and told["correctness"] and told["speedup"] > 1 and "status" not in told
    assert httpx.get(server.url + "/workflow/results/w-1").json() == answer
    assert httpx.get(server.url + "/results/w-1").json() == {**told, "status": "completed"}
    assert httpx.get(server.url + "/workflow/results/nobody").status_code == 404
    assert to_request(EvaluateBody.model_validate(payload("x", uuid="u-7")), "sim:h200").task.id == "kernelgym/u-7"


@pytest.mark.parametrize(("path", "body", "says"), [
    ("/workflow/submit", {"workflow": "kernel_simple", "payload": {}}, "kernelbench"),
    ("/workflow/submit", {"payload": payload("x", toolkit="kernel_simple")}, "kernelbench"),
    ("/workflow/submit", {"payload": {"task_id": "x"}}, "reference_code"),
    ("/evaluate", payload("x", backend_adapter="mine"), "kernelbench"),
    ("/evaluate", payload("x", backend="hip"), "'triton' or 'cuda'"),
])  # fmt: skip
def test_what_is_not_served_is_refused_by_name(serving, path, body, says):
    refused = httpx.post(serving(CountingPool()).url + path, json=body)
    assert refused.status_code == 422 and says in refused.text


def test_queue_and_workers_are_told_under_their_names(serving):
    server = serving(CountingPool(delay=0.2), slots=1)
    assert httpx.get(server.url + "/queue/status").json() == {
        "pending": 0, "pending_by_prefix": {"drkernel": 0}, "worker_queues": {},
    }  # fmt: skip
    httpx.post(server.url + "/v1/worker/lease", json={"worker": "node-7", "slots": 2, "wait_s": 0})
    workers = httpx.get(server.url + "/workers/status").json()
    assert "node-7" in workers and {worker["status"] for worker in workers.values()} == {"online"}
    assert all(worker["last_heartbeat"].startswith("20") for worker in workers.values())
