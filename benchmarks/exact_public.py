"""Public kernels compared with PyTorch in exact arithmetic: what is proved, what differs, what stays open and why.

    python benchmarks/exact_public.py [DIR]                             # DIR: a clone of thunlp/TritonBench
    python benchmarks/exact_public.py DIR --page docs/results/exact_public.md

Kernels of the package ``liger-kernel`` as ``tests/kit/liger_cases.py`` calls them, forward; and of the files of
TritonBench-G in :data:`FILES`. They run on a simulated GPU, whose commands are recorded and evaluated.
"""

import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

from drkernel import sim  # noqa: E402
from drkernel.gym.judge import exact  # noqa: E402
from drkernel.gym.session.protocol import Output  # noqa: E402
from drkernel.sim.exact.dependence import BoundCall  # noqa: E402
from drkernel.sim.exact.machine import earlier_calls  # noqa: E402
from drkernel.sim.gpu.engine import DeviceEngine  # noqa: E402
from drkernel.sim.wire.commands import encode  # noqa: E402
from drkernel.sim.wire.frames import Tape, TapeRecorder  # noqa: E402
from drkernel.tasks.oracle import flatten_outputs  # noqa: E402
from liger_cases import Case, _normal, _with, all_cases  # noqa: E402
from surveys import clone_with, parser_of, write_table  # noqa: E402
from ttir_executor.exact.memory import Undecided  # noqa: E402

SECONDS = 20.0
"""of processor time for the evaluation of one kernel"""
HALF = torch.float16
TUNED = ("mlp (tensor descriptors)",)
"""left out: a tuner's trials, all of which would be evaluated"""


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    scores = (q.float() @ k.float().transpose(-1, -2)) * scale
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    return scores.softmax(-1) @ v.float()


def _linear_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Within a block of 32 all keys, of the blocks before their sums."""
    block = torch.arange(q.shape[-2]) // 32
    return ((q @ k.transpose(-1, -2)) * (block[:, None] >= block[None, :])) @ v * q.shape[-1] ** -0.5


def _bytes(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(-128, 127, shape, dtype=torch.int8)


FILES: list[tuple[str, Callable[[], tuple[torch.Tensor, ...]], Callable[..., Any], Callable[..., Any], torch.dtype]] = [
    ("flash_attn", _normal(*[(1, 2, 128, 32)] * 3), lambda m, *x: m.flash_attn_triton(*x, causal=True, sm_scale=0.25),
     lambda q, k, v: _attention(q, k, v, 0.25, True), HALF),
    ("attention_fwd_triton1", _normal(*[(1, 1, 64, 16)] * 3), lambda m, *x: m.AttentionFunction.apply(*x),
     _linear_attention, torch.float32),
    ("int8_dequant_matmul",
     _with(_bytes(128, 64), _bytes(64, 256), lambda: torch.rand(128), lambda: torch.rand(256), (256,)),
     lambda m, a, b, x, w, c: m.int8_matmul_rowwise_dequantize(a, b, x, w, c),
     lambda a, b, x, w, c: (a.long() @ b.long()).float() / 16129 * x[:, None] * w + c, torch.float32),
    ("dequantize_rowwise", _with(_bytes(8, 32), lambda: torch.rand(8)), lambda m, *x: m.dequantize_rowwise(*x),
     lambda x, s: x.float() * s[:, None] / 127, torch.float32),
    ("softmax_triton1", _normal((8, 64)), lambda m, x: m.softmax(x), lambda x: x.softmax(-1), torch.float32),
    ("geglu_tanh_triton", _normal((2, 64), (2, 64)), lambda m, a, b: m.geglu_forward(a, b)[2],
     lambda a, b: F.gelu(a, approximate="tanh") * b, torch.float32),
    ("matmul_leakyrelu", _normal((64, 64), (64, 64)), lambda m, a, b: m.matmul(a, b, activation="leaky_relu"),
     lambda a, b: F.leaky_relu(a @ b, 0.01), HALF),
    ("log_softmax", _normal((4, 64)), lambda m, x: m.log_softmax(x), lambda x: x.log_softmax(-1), torch.float32),
    ("mean_reduction", _normal((4, 5, 6)), lambda m, x: m.mean_dim(x, [1]), lambda x: x.mean(1), torch.float32),
    ("logsumexp_fwd", _normal((4, 64)), lambda m, x: m.logsumexp_fwd(x), lambda x: x.logsumexp(-1), torch.float32),
    ("swiglu_fwd", _normal((4, 64)), lambda m, x: m._swiglu_fwd(x),
     lambda x: F.silu(x[:, :32]) * x[:, 32:], torch.float32),
    ("reversed_cumsum", _normal((1, 2, 32, 8)), lambda m, x: m.chunk_global_reversed_cumsum_vector(x),
     lambda x: x.flip(2).cumsum(2).flip(2), torch.float32),
    ("chunk_cumsum_vector", _normal((1, 2, 32, 8)), lambda m, x: m.chunk_global_cumsum_vector(x),
     lambda x: x.cumsum(2), torch.float32),
    ("rmsnorm_triton", _normal((2, 4, 64), (64,)), lambda m, x, w: m.rmsnorm_triton_wrapper(x, w, 1e-6),
     lambda x, w: x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6) * w, HALF),
    ("bmm_optimized", _normal((2, 32, 32), (2, 32, 32)), lambda m, *x: m.bmm(*x), torch.bmm, torch.float32),
    ("matrix_vector_multip", _normal((32, 16), (16,)), lambda m, *x: m.mv(*x), torch.mv, torch.float32),
    ("kldiv_triton", _with(lambda: torch.randn(4, 32).log_softmax(-1), lambda: torch.randn(4, 32).softmax(-1)),
     lambda m, a, b: m.kldiv_forward_triton(a, b, False, "batchmean"),
     lambda a, b: F.kl_div(a, b, reduction="batchmean"), torch.float32),
    ("quantize_global", _normal((256,)), lambda m, x: m.quantize_global(x)[1], lambda x: x.abs().max(), torch.float32),
]  # fmt: skip
"""File, inputs, call of its module, the same in PyTorch, type of floating inputs"""


def cases_of(folder: Path) -> Iterator[Case]:
    """TritonBench-G's files as cases."""
    for name, inputs, run, reference, dtype in FILES:
        yield Case(f"TritonBench-G: {name}", inputs, _run_of(folder, name, run), reference, dtype=dtype)


def _run_of(folder: Path, name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Imports the file's part before its own tests, which would run, where a device is active."""

    def call(*inputs: Any) -> Any:
        text = (folder / "data" / "TritonBench_G_v1" / f"{name}.py").read_text(encoding="utf-8").split("\n####")[0]
        path = Path(work) / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(f"public_{name}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        gone = ModuleType("triton.ops.matmul_perf_model")  # which Triton no longer has: how a tuner leaves out choices
        vars(gone).update(early_config_prune=lambda configs, *_, **__: configs[:1], estimate_matmul_time=None)
        sys.modules.update({"triton.ops": ModuleType("triton.ops"), gone.__name__: gone})
        spec.loader.exec_module(module)
        return run(module, *inputs)

    return call


work = ""
"""folder of the files' copies"""


@contextmanager
def recording(engine: DeviceEngine) -> Iterator[Callable[[], Tape]]:
    """Record what runs on a device of this process."""
    recorder = TapeRecorder()
    recorder.on = True
    op, launch, upload = engine.op, engine.launch, engine.upload

    def recorded_op(name: str, args: Any, kwargs: Any) -> Any:
        before = encode(args), encode(kwargs)
        result = op(name, args, kwargs)
        recorder.add("op", name, *before, encode(result))
        return result

    def recorded_launch(command: Any) -> Any:
        result = launch(command)
        texts = encode(list(command.args))
        recorder.launch(str(hash(command.ttir)), command.ttir, command.grid, texts, engine.flow.written)
        return result

    def recorded_upload(tensor: torch.Tensor) -> Any:
        spec = upload(tensor)
        recorder.given(encode(spec), tensor)
        return spec

    engine.op, engine.launch, engine.upload = recorded_op, recorded_launch, recorded_upload  # type: ignore[method-assign]
    recorder.add("call", True)
    yield lambda: Tape(recorder._entries, recorder._kernels, recorder._contents)


def tried(case: Case) -> tuple[str, str, str, str]:
    """(outcome, elements, why, processor seconds) of one case."""
    torch.manual_seed(0)
    inputs, others = ([_cast(value, case.dtype) for value in case.inputs()] for _ in range(2))
    start = time.thread_time()
    try:
        with sim.device(case.gpu) as dev, torch.no_grad(), recording(dev.engine) as tape:
            found = case.run(*[value.cuda() for value in inputs])
            found = found if isinstance(found, (tuple, list)) else [found]
            outputs = [_output(dev.engine, value) for value in found if value is not None]
            recorded = tape()
        bound = BoundCall(lambda given: flatten_outputs(case.reference(*given)), inputs, others, {}, {})
        kernels = [entry[1] for entry in recorded.entries if entry[0] == "launch"]
        call = exact.RecordedCall(bound, recorded, outputs, [], kernels, earlier_calls(recorded), [])
        exact.SECONDS = SECONDS
        record, _ = exact.compared(call, lambda purpose, index: hash((purpose, index)) % 2**62, time.monotonic())
    except Undecided as error:
        return "open", "0", str(error).partition(" (/")[0][:80], f"{time.thread_time() - start:.1f}"
    except Exception as error:  # a case may raise anything
        return "failed", "0", f"{type(error).__name__}: {error}"[:120].splitlines()[0], "0"
    share = f"{record.equal} of {record.elements}"
    why = record.why or (f"{record.differ} differ" if record.differ else "")
    return record.outcome, share, why.partition(": ")[2] or why, f"{time.thread_time() - start:.1f}"


def _cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _output(engine: DeviceEngine, tensor: torch.Tensor) -> Output:
    held = engine.heap.held(tensor._handle)  # type: ignore[attr-defined]
    spec = held.spec
    return Output(None, spec.handle, spec.shape, spec.stride, spec.dtype, "cuda:0", "Tensor", held.base, spec.address)


def main() -> None:
    """Print the table."""
    import tempfile

    global work
    parser = parser_of(__doc__)
    parser.add_argument("folder", nargs="?", type=clone_with("data/TritonBench_G_v1"), help="a clone of TritonBench")
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--page", type=Path, help="write the CSV file beside this page")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Sequence[str]] = []
    with tempfile.TemporaryDirectory() as work:
        for case in [*(cases_of(given.folder) if given.folder else ()), *all_cases()]:
            if given.only in case.name and case.name not in TUNED:
                rows.append((case.name, *tried(case)))
                print(*rows[-1], sep="\t", flush=True)
    counts = Counter(row[1] for row in rows)
    headline = f"Of {len(rows)}, {counts['proved']} are proved, {counts['differs']} differ, {counts['open']} are open."
    print(headline)
    if given.page:
        head = ["kernel", "outcome", "elements", "why", "seconds"]
        write_table(given.page.with_suffix(".csv"), [head, *map(list, rows)])
    for why, count in Counter(row[3] for row in rows if row[1] == "open").most_common():
        print(count, why)


if __name__ == "__main__":
    main()
