"""KernelGYM's own reward client, from a checkout of it, gets its rewards from ``drkernel serve``.

    git clone https://github.com/hkust-nlp/KernelGYM /tmp/kernelgym
    pip install --no-deps --target /tmp/kernelgym-deps verl==0.5.0 tensordict codetiming hydra-core omegaconf \\
        antlr4-python3-runtime==4.9.3 datasets dill multiprocess xxhash pandas python-dateutil pytz six pyvers \\
        cloudpickle
    pip install 'drkernel[ray]'
    python benchmarks/kernelgym_client.py /tmp/kernelgym --deps /tmp/kernelgym-deps

Nothing of the checkout is changed: its ``compute_kernel_reward_batch`` runs with the address of a service that this
script starts (or of ``KERNELGYM_SERVER_URL``). Four candidates for one task: a good kernel, a decoy, one that does not
compile, one that is wrong. Prints the rewards that the client computed; exit code 1 when they do not rank so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from surveys import parser_of

REFERENCE = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0

def get_inputs():
    return [torch.randn(16, 64)]

def get_init_inputs():
    return []
"""

GOOD = """import torch
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

CANDIDATES = {
    "good": GOOD,
    "decoy": GOOD.replace("return o", "return torch.relu(x) * 2.0 + 1.0"),
    "broken": GOOD.replace("tl.maximum(", "tl.maxi("),
    "wrong": GOOD.replace("+ 1.0, mask", "+ 1.5, mask"),
}


def reward_config(url: str) -> Any:
    """The reward section of KernelGYM's recipes, with the defaults of its scripts."""
    from omegaconf import OmegaConf

    return OmegaConf.create(
        {
            "server_url": url, "timeout": 1800, "task_timeout": 120, "task_timeout_in_client": 600, "max_retries": 3,
            "rate_limit": 64, "max_concurrent": 32, "acquire_timeout": 2400,
            "num_perf_trials": 10, "num_correct_trials": 5, "enable_profiling": True, "verbose_errors": True,
            "detect_decoy_kernel": True, "reference_backend": None,
            "reward_func_name": "calculate_reward_weighted", "init_correct_weight": 0.3,
            "init_performance_weight": 0.7, "speedup_eps": 0.05, "speedup_reward_upper_bound": 3.0,
            "speedup_reward_lower_bound": 0.0,
            "reward_policy": {"penalties": {"penalty_score": -1.0}},
            "coverage_reward": {"enable": True, "weight": 0.5, "reward_type": "time_coverage"},
        }
    )  # fmt: skip


def main() -> None:
    """Start a service unless one is given, ask the client for rewards, compare."""
    parser = parser_of(__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of KernelGYM")
    parser.add_argument("--deps", type=Path, help="folder with what its client imports (verl)")
    options = parser.parse_args()
    # the client's Ray workers import from these too
    paths = [str(options.checkout / "drkernel"), *([str(options.deps)] if options.deps else [])]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    server = None
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("KERNELGYM_SERVER_URL", "")
        if not url:
            command = [sys.executable, "-m", "drkernel", "serve", "--port", "0", "--store", f"{folder}/s.sqlite"]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
        try:
            good = report(url)
        finally:
            if server is not None:
                server.terminate()
                server.wait(60)
    raise SystemExit(not good)


def report(url: str) -> bool:
    """Rewards by KernelGYM's client; whether they rank as they must."""
    import ray
    from kernel.rewards import compute_kernel_reward_batch

    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level=40, log_to_driver=False)
    rows = compute_kernel_reward_batch(
        [f"# Kernel Implementation\n{source}\n# End" for source in CANDIDATES.values()],
        [REFERENCE] * len(CANDIDATES),
        ["Model"] * len(CANDIDATES),
        reward_config=reward_config(url),
    )
    ray.shutdown()
    for name, row in zip(CANDIDATES, rows, strict=True):
        shown = {
            key: row.get(key) for key in ("reward", "status", "compiled", "correctness", "decoy_kernel", "speedup")
        }
        print(f"{name:<7}", shown, str(row.get("error") or row.get("error_message") or "")[:90])
    rewards = {name: row["reward"] for name, row in zip(CANDIDATES, rows, strict=True)}
    return rewards["good"] > 0.5 and all(rewards[name] <= 0 for name in CANDIDATES if name != "good")


if __name__ == "__main__":
    main()
