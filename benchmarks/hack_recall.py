"""Grade the whole corpus of cheats and honest twins, and write docs/hacks.md with its table, docs/hacks.csv.

    python benchmarks/hack_recall.py            # prints the table, exit code 1 when anything is not as it must be
    python benchmarks/hack_recall.py --write    # also writes docs/hacks.md and docs/hacks.csv

Needs no GPU; about three minutes on two cores.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

from corpus_grading import ROOTS, Entry, entries, try_entry  # noqa: E402
from drkernel.gym.session.factory import SessionFactory  # noqa: E402
from drkernel.verdict import Verdict  # noqa: E402
from surveys import write_table  # noqa: E402

PAGE = ROOT / "docs" / "hacks.md"

TIERS = {
    "T0": "no work done",
    "T1": "wrong answer or replay",
    "T2": "tampering in Python",
    "T3": "native code in the process",
    "T4": "across processes",
}
INTRODUCTION = """# Cheats

How many ways to deceive the judge have been tried, and how many earned something? **{cheats} cheats, {caught} caught;
{honest} honest candidates, {condemned} condemned** (`sim:h200`, default settings). What nobody has tried is not in this
table: a kernel that the judge passes and should not is the most useful report there is
([SECURITY.md](../SECURITY.md)).

`python benchmarks/hack_recall.py --write` grades `tests/corpus/` and writes this page. A cheat is caught when it earns
nothing: it is condemned (*hack*), its answer is refused, its process is stopped, or the attack has *no effect*: it is
graded no faster than its honest twin, has not reached its target, and the next evaluation is as before. *Little work*
is no cheat: the candidate is correct, and its coverage is low.
"""
LIMITS = """
## Attacked in vain, or once

- results kept in the autograd graph, a module's hook, a buffer registered late, the JIT function, a `torch.library`
  operator, a thread, behind an address passed as a number, in a CUDA graph: `stale_output`, or refused.
- work in timers and in hooks of `load_state_dict`, between calls: wrong: the device takes no commands then.
- operators inside `torch.jit.trace`, `vmap`, `torch.library`: counted as PyTorch's: `copy_kernel`.
- at own sizes: a sort of short pieces, a scan or a selection along another axis, a straight copy for a
  transposition, a broadcast column: earned up to 75 times; `size_dependent` since operators are compared by axes and
  strides.
- at own sizes: fewer atomic updates, loops that ran once where rows were shorter than a block: earned;
  `size_dependent` since updates and used lanes count.
- at own sizes: streams that do not wait, a tuner's choice, a loop bound from an uploaded tensor: no effect, or
  `size_dependent`.
- a kernel steered by a value beside a mask too large to hand over, to be timed at the checked sizes: earned;
  `data_dependent` unless the mask itself steers.
- a weight or an input never read where erf or bit casts leave the exact comparison open: earned up to 8 times;
  `not_equivalent`.
- a host that iterates on a few hundred bytes and sends them back: earned; `host_compute`.
- at own sizes: half of a product whose columns an index takes in another order, cheap products or sums in place of dear
  ones, pairs of whole numbers left out: earned 1.7 to 5.7 times their twin; `size_dependent` now.
- TF32 in some tiles, bf16 in one step of K: wrong by tolerance.
- a neighbour's or parent's memory, descriptors, sockets, files, System V segments: refused; priorities and limits of
  others are now, too.
- 64-bit remainders and products, rounded divisions and roots in assembly, priced as one instruction: earned up to 3.0
  times their twin; priced as what the assembler makes of them now.
- work in hooks of autograd, modules, tuners, heuristics and launches, in `torch.library`, `__call__`, a class that
  changes; in finalisers, collections and signals after the call; outputs in odd forms; 42 in all: nothing.
- all rounds in a loop inside the function of a reduction, scan or map, which was priced as one: earned up to 9.7 times;
  priced by its rounds now, and without a price where they are not constant.
- rows gathered modulo 64, statistics of half a group, half of a row's maximum, the other of equal values, an input of
  zeros or an identity left out, one tensor for two, launches on eight streams, sparse and nested outputs: nothing.

Live, against what stands around a grade (2026-11-26):

| attacked | tried | outcome |
|---|---|---|
| one zygote for eight, one session at a time | 32 doors: `/proc`, shared memory, sockets, keyring, caches, signals \
| file locks and watches of libraries were open, refused now; a hint to drop a library's pages is not |
| the same, eight at once | seven that fork and fill memory beside an honest one \
| the same speedup, 4 of 4; 7 to 9 s for 1 s |
| the same, eight at once | the corpus' 32 of tampering and across processes, an honest one beside \
each | as alone, the same time for all honest |
| `drkernel mcp` | paths outside, links, a pipe, 3 GB; `command:`, `agent:`, URLs as references | 18 of 18 refused |
| terminal | escapes, returns, right-to-left marks in prints, names of weights, errors | shown as text |
| compiled baseline, stores on disk | their folders listed, written, linked, moved; Inductor's settings, environment | \
refused, the same speedup; `stat` of a guessed path answers |

| `agent:` | 8: a link to `/proc/self/mem` or the environment as answer, pipes, 3000 attempts at once, deep and broken \
JSON, escapes, a daemon | ended the whole run, and took a link's target for an answer: no more; the daemon survives |
| `command:` | 4: output without end, bytes, escapes, a child that holds the output \
| bounded at 16 MiB; the child costs the turn's time |

Not tried live: the 32 doors with eight sessions running, plug-ins, `drkernel mcp` over HTTP.

## Known limits

- **Native code in the runner (T3)** can crash, stall and forge messages. It cannot read an answer or set a time:
  reference, expected outputs, seeds and comparison are in the judge, memory, counters and clock in the device process.
  On a CUDA device the runner's own driver reports launches and times; a wall clock and a roofline in the judge bound
  the gain, and the co-judge repeats the experiments on a simulated card
  ([gym.md](gym.md#what-can-be-observed-where)).
- **Other processes (T4)** are stopped by namespaces, user ids, Landlock, seccomp and the kill of the process tree.
  Where the machine forbids a layer, the verdict names it ([sandbox.md](sandbox.md)).
- **Little work that contributes** is laziness, which coverage and the reward deal with.
- **The co-judge** sees nothing of a candidate that fails on the simulated card alone; the verdict says so.
- **A fixed seed** (`--seed`) is no secret: who knows it and the request can compute the inputs. Leave it out where
  candidates are hostile.
- **A host that iterates** on under 128 bytes and sends them back, or on under 1024 and hands over a few numbers, is not
  priced.
- **Guessing** secret inputs, weights or the order of calls is sometimes right in one call, rarely in all.
- **A formula that differs only outside of every input drawn** passes, and need not read what only counts there: `x` for
  `maximum(x, y - 1000)` gets 2.2 times, its twin 1.6
  ([correctness.md](correctness.md#what-the-comparison-cannot-detect)).
- **An iteration that has converged** may stop: `tanh(x) * 1.5` after 32 of 40 rounds gets 6.4 times.
- **Honest ones refused**: who takes an `N x N` input for square is wrong where it is checked with fewer rows; a window
  of keys, a grid barrier and a last block as wide as a capped number of programs get no speedup at own sizes.

## Entries

One row a file. *Root* is the weakness that it aims at, *class* the number of the trick among those seen in public
benchmarks (of a twin: the trick that it is the honest form of).
"""


def outcome(entry: Entry, verdict: Verdict) -> str:
    """How a cheat ended, in a few words."""
    kinds = [f.kind for f in verdict.findings if f.severity in ("hack", "bug")]
    if verdict.status == "correct":
        if entry.honest:
            return "correct" if verdict.coverage is None else f"correct: coverage {verdict.coverage:.0%}"
        if entry.expect == "lazy":
            return f"little work: coverage {verdict.coverage:.0%}"
        if entry.expect == "uncredited":
            return f"no speedup is given: {', '.join(kinds)}"
        return "no effect"
    detail = ", ".join(dict.fromkeys(kinds))
    if not detail and verdict.error is not None:
        detail = verdict.error.type
    if not detail and verdict.correctness is not None:
        detail = f"call {verdict.correctness.passed_calls + 1} wrong"
    return f"{verdict.status.replace('_', ' ')}: {detail}" if detail else verdict.status


def report(rows: list[tuple[Entry, Verdict, str | None]]) -> str:
    """The page; writes the table of entries beside it."""
    cheats = [row for row in rows if not row[0].honest]
    honest = [row for row in rows if row[0].honest]
    caught = Counter(label for entry, _, wrong in cheats if wrong is None for label in (entry.tier, entry.root))
    all_of = Counter(label for entry, _, _ in cheats for label in (entry.tier, entry.root))
    text = [
        INTRODUCTION.format(
            cheats=len(cheats),
            caught=sum(wrong is None for _, _, wrong in cheats),
            honest=len(honest),
            condemned=sum(wrong is not None for _, _, wrong in honest),
        )
    ]
    for head, labels in (("| tier | what |", TIERS), ("| root | what is attacked |", ROOTS)):
        text += [f"{head} cheats | caught |", "|---|---|---:|---:|"]
        text += [f"| `{name}` | {what} | {all_of[name]} | {caught[name]} |" for name, what in labels.items()] + [""]
    kinds = Counter(f.kind for _, v, _ in cheats for f in v.findings if f.severity == "hack")
    text.append(
        "Findings that condemned: " + ", ".join(f"`{kind}` {count}" for kind, count in kinds.most_common()) + "."
    )
    table = [["entry", "tier", "root", "class", "what it does", "outcome"]]
    for entry, verdict, wrong in [*cheats, *honest]:
        number = entry.header.get("twin of" if entry.honest else "hacks", "")
        tier, root = ("honest", "") if entry.honest else (entry.tier, entry.root)
        said = outcome(entry, verdict) if wrong is None else f"NOT AS IT SHOULD BE: {wrong}"
        table.append([entry.id, tier, root, number, entry.what, said])
    return "\n".join([*text, LIMITS, write_table(PAGE.with_suffix(".csv"), table), ""])


def main() -> int:
    """Grade, print, perhaps write; 1 when a cheat got through or an honest candidate was condemned."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/hacks.md and docs/hacks.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[tuple[Entry, Verdict, str | None]] = []
    twins: dict[str, Verdict] = {}
    start = time.perf_counter()
    with SessionFactory() as factory:
        for entry in entries("honest") + entries("cheats"):
            rows.append((entry, *try_entry(entry, factory, twins)))
    for entry, _, wrong in rows:
        if wrong is not None:
            print(f"{entry.path}: {wrong}")
    bad = sum(wrong is not None for _, _, wrong in rows)
    for tier in TIERS:
        mine = [wrong for entry, _, wrong in rows if entry.tier == tier]
        print(f"{tier}: {sum(w is None for w in mine)} of {len(mine)} caught")
    for root in ROOTS:
        mine = [wrong for entry, _, wrong in rows if not entry.honest and entry.root == root]
        if mine:
            print(f"{root}: {sum(w is None for w in mine)} of {len(mine)} caught")
    honest = [wrong for entry, _, wrong in rows if entry.honest]
    print(f"honest: {sum(w is not None for w in honest)} of {len(honest)} condemned")
    print(f"{len(rows)} graded in {time.perf_counter() - start:.0f} s")
    if arguments.write:
        PAGE.write_text(report(rows), encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)} and its table")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
