"""How far honest arithmetic stays inside the tolerance, and how far downgraded arithmetic falls outside it.

    python benchmarks/tolerance_margins.py [--seeds 5] [--profile tiny]

Over every task of the built-in suite, seeds and input variants: the reference in another order of operations
(honest), with operands rounded to the next lower precision (the least error that such a downgrade can have) or, for
fp32, to the sixteen bits of two bf16, and computed in the next lower precision altogether. Errors are in units of
what passes: at most 1 is accepted. Runs on one core; no GPU.
"""

from __future__ import annotations

import statistics
from collections import defaultdict

import torch

from drkernel.tasks.builtin import builtin_tasks
from drkernel.tasks.correctness import compare, precision_class
from drkernel.tasks.gate import reference_in_lower_precision
from drkernel.tasks.inputs import VARIANTS
from drkernel.tasks.oracle import MANTISSA_BITS, NEXT_LOWER, RawOutput, flatten_outputs
from drkernel.tasks.problem import Instance, ReferenceCall, load_problem
from drkernel.tasks.promote import run_rounded
from drkernel.tasks.reorder import Reordered
from surveys import parser_of

TWO_BF16 = 15
"""stored bits of an operand that is the sum of two bf16"""


def error(instance: Instance, call: ReferenceCall, outputs: list[RawOutput]) -> float:
    """Worst error of the floating outputs over what passes, by element and as a whole; integers are the oracle's."""
    answer: list[RawOutput] = []
    for got, want in zip(outputs, call.oracle.outputs, strict=True):
        answer.append(torch.as_tensor(got if want.floating else want.value).to(want.declared.dtype))
    elements = compare(answer, call.oracle, instance.rule).max_error or 0.0
    shares = [one.error / one.limit for one in precision_class(answer, call.oracle, instance.rule).accuracies]
    return max([elements, *shares])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--profile", default="tiny")
    options = parser.parse_args()
    torch.set_num_threads(1)
    honest: dict[str, list[float]] = defaultdict(list)
    rounded: dict[str, list[float]] = defaultdict(list)  # worst of a seed's calls: the judge needs all of them right
    halves: list[float] = []
    lowered: dict[str, list[float]] = defaultdict(list)
    passed: dict[str, set[str]] = defaultdict(set)
    for task in builtin_tasks():
        bits = MANTISSA_BITS[NEXT_LOWER[task.precision]]
        for seed in range(options.seeds):
            instance = load_problem(task, options.profile).instance(seed)
            worst_rounded = worst_lowered = worst_halves = 0.0
            for number, variant in enumerate(VARIANTS):
                call = instance.draw_call(1000 * seed + number, variant)
                if not any(want.floating for want in call.oracle.outputs):
                    continue
                with Reordered(one_pass=True):
                    honest[task.precision].append(error(instance, call, instance.run(call.inputs)))
                outputs = flatten_outputs(run_rounded(instance.model, call.inputs, bits))
                worst_rounded = max(worst_rounded, error(instance, call, outputs))
                if task.precision == "fp32":
                    split = flatten_outputs(run_rounded(instance.model, call.inputs, TWO_BF16))
                    worst_halves = max(worst_halves, error(instance, call, split))
                worst_lowered = max(worst_lowered, error(instance, call, reference_in_lower_precision(instance, call)))
            if worst_rounded:
                rounded[task.precision].append(worst_rounded)
                lowered[task.precision].append(worst_lowered)
                halves += [worst_halves] if task.precision == "fp32" else []
                if worst_rounded <= 1:
                    passed[task.precision].add(task.id)
    print("| declared | honest: worst | downgraded operands: least, median | computed lower: least, median |")
    print("|---|---|---|---|")
    for precision in sorted(honest):
        rows = (rounded[precision], lowered[precision])
        columns = [f"{min(row):.2g}, {statistics.median(row):.2g}" for row in rows]
        print(f"| {precision} | {max(honest[precision]):.2g} | {columns[0]} | {columns[1]} |")
    share = sum(one > 1 for one in halves) / len(halves)
    print(f"fp32 operands of sixteen bits: median {statistics.median(halves):.2g}, refused in {share:.0%} of the draws")
    for precision, names in passed.items():
        print(f"operands rounded below {precision} pass for some seed: {', '.join(sorted(names))}")


if __name__ == "__main__":
    main()
