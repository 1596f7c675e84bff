"""A scripted writer of real kernels for some built-in tasks: it climbs a ladder by what it is shown.

Rungs: prose without code, a kernel that does not compile, one that is wrong, a module whose last step alone is a
kernel, a fused kernel that wastes time on copies, the fused kernel. Each is real source, graded by the real judge. The
writer sees only its conversation: it finds the best of its own answers there, and with fixed chances goes one rung
further, stays, or slips. Nothing else is assumed of a model; in particular a long conversation does not make it worse.

It is also a program to try `drkernel bench` and `drkernel solve` with, without a model (tasks that it has no kernel for
get prose; --climb 0.7 makes it a better writer):

    drkernel bench --model "command:python benchmarks/stts_writer.py --climb 0.7" --tag loss --turns 4
"""

import argparse
import json
import os
import random
import re
from dataclasses import dataclass
from pathlib import Path

RUNGS = ("prose", "does not compile", "wrong", "last step only", "with copies", "fused")
CLIMB = 0.35


@dataclass(frozen=True)
class Kernel:
    """How one task is solved, a program a row.

    ``body`` computes from ``x0``, ``x1``, ... (a row of each input, in float32) and parameters ``w0``, ... the values
    ``y0``, ...; ``outs`` says of each whether it is a whole row ("row") or one number ("one"). ``rows`` and ``cols``
    are Python expressions over the arguments ``a0``, ...; ``first`` does all but the last step in PyTorch.
    """

    args: int
    body: str
    outs: tuple[str, ...]
    first: str
    """Python: from a0, ... (and self.*) to t0, ..., the inputs of the last step."""
    last: str
    """Triton: from x0, ... (rows of t0, ...) to y0, ...; one whole row or number each."""
    cols: str = "a0.shape[-1]"
    params: tuple[str, ...] = ()
    init: str = ""
    """Constructor: its parameters and body, lines after 'def __init__(self, '."""
    strides: tuple[str, ...] = ()
    """Columns to skip a row for each input; default: cols."""
    pads: tuple[str, ...] = ()
    """The value that masked elements of each input read as; default 0."""
    shape: str = "a0.shape"
    """Shape of whole-row outputs."""
    wrong: tuple[str, str] = ("", "")
    """Text of the body and what the wrong rung makes of it."""


LN = "def __init__(self, features):\n        super().__init__()\n        self.norm = torch.nn.LayerNorm(features)"
KERNELS: dict[str, Kernel] = {
    "builtin/level1/kl_divergence": Kernel(
        2, "y0 = tl.sum(tl.where(x1 > 0, x1 * (tl.log(tl.where(x1 > 0, x1, 1.0)) - x0), 0.0), 0)", ("one",),
        "t0 = torch.nn.functional.kl_div(a0, a1, reduction='none')", "y0 = tl.sum(x0, 0)",
        wrong=("- x0", "+ x0"),
    ),
    "builtin/level1/smooth_l1_rows": Kernel(
        2, "d = tl.abs(x0 - x1)\n    y0 = tl.sum(tl.where(d < 1.0, 0.5 * d * d, d - 0.5), 0) / cols", ("one",),
        "t0 = torch.nn.functional.smooth_l1_loss(a0, a1, reduction='none')", "y0 = tl.sum(x0, 0) / cols",
        wrong=("d - 0.5", "d"),
    ),
    "builtin/level1/cosine_similarity": Kernel(
        2, "n = tl.sqrt(tl.sum(x0 * x0, 0)) * tl.sqrt(tl.sum(x1 * x1, 0))\n"
        "    y0 = tl.sum(x0 * x1, 0) / tl.maximum(n, 1e-16)", ("one",),
        "t0 = a0 * a1 / (a0.norm(dim=-1, keepdim=True) * a1.norm(dim=-1, keepdim=True))", "y0 = tl.sum(x0, 0)",
        wrong=("tl.sqrt(tl.sum(x1 * x1, 0))", "tl.sqrt(tl.sum(x0 * x0, 0))"),
    ),
    "builtin/level1/l2_normalize": Kernel(
        1, "y0 = x0 / tl.maximum(tl.sqrt(tl.sum(x0 * x0, 0)), 1e-12)", ("row",),
        "t0 = a0\n        t1 = a0.square()", "y0 = x0 / tl.maximum(tl.sqrt(tl.sum(x1, 0)), 1e-12)",
        wrong=("tl.sqrt", ""),
    ),
    "builtin/level1/triplet_loss": Kernel(
        3, "p = x0 - x1 + 1e-6\n    n = x0 - x2 + 1e-6\n    p = tl.where(inside, p, 0.0)\n"
        "    n = tl.where(inside, n, 0.0)\n"
        "    y0 = tl.maximum(tl.sqrt(tl.sum(p * p, 0)) - tl.sqrt(tl.sum(n * n, 0)) + 1.5, 0.0)", ("one",),
        "t0 = (a0 - a1 + 1e-6).square()\n        t1 = (a0 - a2 + 1e-6).square()",
        "y0 = tl.maximum(tl.sqrt(tl.sum(x0, 0)) - tl.sqrt(tl.sum(x1, 0)) + 1.5, 0.0)",
        init="def __init__(self, margin):\n        super().__init__()", wrong=("+ 1.5", "+ 1.0"),
    ),
    "builtin/level1/rms_norm_bf16": Kernel(
        1, "r = 1.0 / tl.sqrt(tl.sum(x0 * x0, 0) / cols + 1e-6)\n"
        "    y0 = (x0 * r).to(tl.bfloat16).to(tl.float32) * w0", ("row",),
        "wide = a0.float()\n"
        "        t0 = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(a0.dtype)",
        "y0 = x0 * w0", params=("self.weight",),
        init="def __init__(self, features, eps):\n        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.ones(features, dtype=torch.bfloat16))",
        wrong=("/ cols + 1e-6", "+ 1e-6"),
    ),
    "builtin/level2/gated_residual": Kernel(
        2, "g = 1.0 / (1.0 + tl.exp(-(x1 * w0 + w1)))\n    y0 = g * x1 + (1.0 - g) * x0", ("row",),
        "t0 = a0\n        t1 = a1\n        t2 = torch.sigmoid(a1 * self.weight + self.bias)",
        "y0 = x2 * x1 + (1.0 - x2) * x0", params=("self.weight", "self.bias"),
        init="def __init__(self, features):\n        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.randn(features))\n"
        "        self.bias = torch.nn.Parameter(torch.zeros(features))",
        wrong=("(1.0 - g) * x0", "g * x0"),
    ),
    "builtin/level2/residual_layernorm": Kernel(
        2, "y1 = x0 + x1\n    m = tl.sum(y1, 0) / cols\n    c = tl.where(inside, y1 - m, 0.0)\n"
        "    y0 = c / tl.sqrt(tl.sum(c * c, 0) / cols + 1e-5) * w0 + w1", ("row", "row"),
        "t1 = a0 + a1\n        t0 = torch.nn.functional.layer_norm(t1, t1.shape[-1:])",
        "y0 = x0 * w0 + w1\n    y1 = x1 * 1.0", params=("self.norm.weight", "self.norm.bias"), init=LN,
        wrong=("* w0 + w1", "* w0"),
    ),
    "builtin/level2/bias_gelu_residual_fp16": Kernel(
        2, "h = x0 + w0\n    y0 = 0.5 * h * (1.0 + tl.erf(h * 0.70710678)) + x1", ("row",),
        "t0 = torch.nn.functional.gelu(a0 + self.bias)\n        t1 = a1", "y0 = x0 + x1", params=("self.bias",),
        init="def __init__(self, features):\n        super().__init__()\n"
        "        self.bias = torch.nn.Parameter(torch.randn(features, dtype=torch.float16))",
        wrong=("* 0.70710678", ""),
    ),
    "builtin/level2/dice_loss_sigmoid": Kernel(
        2, "p = tl.where(inside, 1.0 / (1.0 + tl.exp(-x0)), 0.0)\n"
        "    y0 = 1.0 - (2.0 * tl.sum(p * x1, 0) + 1.0) / (tl.sum(p, 0) + tl.sum(x1, 0) + 1.0)", ("one",),
        "t0 = torch.sigmoid(a0)\n        t1 = a1\n        t2 = t0 * a1",
        "y0 = 1.0 - (2.0 * tl.sum(x2, 0) + 1.0) / (tl.sum(x0, 0) + tl.sum(x1, 0) + 1.0)",
        init="def __init__(self, smooth):\n        super().__init__()", wrong=("2.0 * tl", "1.0 * tl"),
    ),
    "builtin/level2/causal_softmax_fp16": Kernel(
        1, "x0 = tl.where(at <= row % cols, x0, -float('inf'))\n    e = tl.exp(x0 - tl.max(x0, 0))\n"
        "    y0 = e / tl.sum(e, 0)", ("row",),
        "later = torch.ones(a0.shape[-2:], dtype=torch.bool, device=a0.device).triu(1)\n"
        "        t0 = a0.masked_fill(later, float('-inf'))",
        "e = tl.exp(x0 - tl.max(x0, 0))\n    y0 = e / tl.sum(e, 0)", pads=("-float('inf')",),
        wrong=("at <= row", "at < row"),
    ),
    "builtin/level1/softmax": Kernel(
        1, "e = tl.exp(x0 - tl.max(x0, 0))\n    y0 = e / tl.sum(e, 0)", ("row",),
        "t0 = (a0 - a0.max(-1, keepdim=True).values).exp()", "y0 = x0 / tl.sum(tl.where(inside, x0, 0.0), 0)",
        pads=("-float('inf')",), wrong=("/ tl.sum(e, 0)", "/ cols"),
    ),
    "builtin/level1/logsumexp": Kernel(
        1, "m = tl.max(x0, 0)\n    y0 = m + tl.log(tl.sum(tl.exp(x0 - m), 0))", ("one",),
        "top = a0.max(-1, keepdim=True).values\n        t0 = (a0 - top).exp()\n"
        "        t1 = top.expand_as(a0).contiguous()",
        "y0 = tl.max(x1, 0) + tl.log(tl.sum(tl.where(inside, x0, 0.0), 0))",
        pads=("-float('inf')", "-float('inf')"), wrong=("m + tl.log", "tl.log"),
    ),
    "builtin/level1/mish": Kernel(
        1, "s = tl.maximum(x0, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x0)))\n    e = tl.exp(-2.0 * s)\n"
        "    y0 = x0 * (1.0 - e) / (1.0 + e)", ("row",),
        "t0 = a0\n        t1 = torch.tanh(torch.nn.functional.softplus(a0))", "y0 = x0 * x1",
        wrong=("-2.0 * s", "-s"),
    ),
}  # fmt: skip


def source(name: str, rung: int) -> str:
    """The module of a rung (1 to 5) for a task."""
    kernel = KERNELS[name]
    if rung == 3:
        count = kernel.last.count("x") and 1 + max(int(k) for k in re.findall(r"\bx(\d)\b", kernel.last))
        return _module(kernel, kernel.last, [f"t{k}" for k in range(count)], kernel.first, rung)
    body = kernel.body.replace(*kernel.wrong) if rung == 2 else kernel.body
    if rung == 1:
        body += "\n    y0 = y0 * undefined_scale"
    copies = "; ".join(f"t{k} = (a{k} * 1).clone()" for k in range(kernel.args)) if rung == 4 else ""
    inputs = [f"t{k}" if rung == 4 else f"a{k}" for k in range(kernel.args)]
    return _module(kernel, body, inputs, copies, rung)


def _module(kernel: Kernel, body: str, inputs: list[str], before: str, rung: int) -> str:
    """Source text: a kernel with a program a row, and the module that launches it."""
    outs = [f"o{k}" for k in range(len(kernel.outs))]
    weights = [f"w{k}" for k in range(len(kernel.params))]
    pads = [*kernel.pads, *["0.0"] * len(inputs)]
    loads = [f"x{k} = tl.load(i{k} + row * cols + at, inside, {pads[k]}).to(tl.float32)" for k in range(len(inputs))]
    loads += [f"{w} = tl.load(p{w} + at, inside, 0.0).to(tl.float32)" for w in weights if re.search(rf"\b{w}\b", body)]
    stores = [
        f"tl.store({out} + row * cols + at, y{k}, inside)" if kind == "row" else f"tl.store({out} + row, y{k})"
        for k, (out, kind) in enumerate(zip(outs, kernel.outs, strict=True))
    ]
    pointers = [f"i{k}" for k in range(len(inputs))] + [f"p{w}" for w in weights] + outs
    make = [
        f"{out} = torch.empty({kernel.shape if kind == 'row' else kernel.shape + '[:-1]'}, dtype=a0.dtype, "
        "device=a0.device)"
        for out, kind in zip(outs, kernel.outs, strict=True)
    ]
    call = [*inputs, *kernel.params, *outs]
    host = [*([before] if before else []), f"cols = {kernel.cols}", *make]
    host.append(f"row_kernel[(a0.numel() // cols,)]({', '.join(call)}, cols, BLOCK=triton.next_power_of_2(cols))")
    host.append("return " + ", ".join(outs))
    init = f"    {kernel.init}\n\n" if kernel.init else ""
    arguments = ", ".join(f"a{k}" for k in range(kernel.args))
    newline = "\n    "
    return f"""# rung {rung}
import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel({", ".join(pointers)}, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < cols
    {newline.join(loads)}
    {body}
    {newline.join(stores)}


class ModelNew(torch.nn.Module):
{init}    def forward(self, {arguments}):
        {(newline + "    ").join(host)}
"""


def answer(own: list[str], task_id: str, climb: float, stay: float, draw: random.Random) -> str:
    """The next answer after those of ``own``."""
    best = max((int(found[1]) for text in own if (found := re.search(r"# rung (\d)", text))), default=0)
    luck = draw.random()
    if luck < climb:
        rung = min(best + 1, len(RUNGS) - 1)
    elif luck < climb + stay:
        rung = best
    else:
        rung = draw.randrange(best + 1)
    if rung == 0 or task_id not in KERNELS:
        return "Let me think about the memory traffic first."
    return f"```python\n{source(task_id, rung)}```"


def main() -> None:
    """One answer, for ``command:`` models: the conversation is the file that DRKERNEL_MESSAGES names.

    Its draws depend on the seed, the task, the sample and the turn alone.
    """
    parser = argparse.ArgumentParser(description="A scripted writer of kernels, as a command: model.")
    parser.add_argument("--climb", type=float, default=CLIMB)
    parser.add_argument("--stay", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    messages = json.loads(Path(os.environ["DRKERNEL_MESSAGES"]).read_text(encoding="utf-8"))
    task, sample, turn = (os.environ[f"DRKERNEL_{name}"] for name in ("TASK", "SAMPLE", "TURN"))
    draw = random.Random(f"{arguments.seed}\0{task}\0{int(sample)}\0{int(turn)}")
    own = [message["content"] for message in messages if message["role"] == "assistant"]
    print(answer(own, task, arguments.climb, arguments.stay, draw))


if __name__ == "__main__":
    main()
