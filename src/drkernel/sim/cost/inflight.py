"""How many bytes one program of a Triton kernel keeps outstanding, read off its TTIR."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

_LOAD = re.compile(r"\btt\.load\b.*:\s*(?:tensor<(?P<dims>[\dx]+)x)?!tt\.ptr<(?P<kind>\w+)")
_BITS = re.compile(r"(\d+)")


@dataclass
class _Loop:
    depth: int
    nbytes: float = 0.0
    pipelined: bool = False


def _load_bytes(line: str) -> float:
    found = _LOAD.search(line)
    if not found:
        return 0.0
    elements = math.prod(int(size) for size in (found["dims"] or "1").split("x"))
    bits = _BITS.search(found["kind"])
    return elements * max(1, int(bits.group(1)) if bits else 32) / 8.0


@lru_cache(maxsize=1024)
def bytes_in_flight(ttir: str, num_stages: int) -> float | None:
    """Bytes of loads that one program has under way at a time; None for a kernel that loads nothing.

    Loads of straight-line code are all issued before the first is needed. In a loop one iteration's are, times the
    pipeline's depth where Triton pipelines: loops around ``tt.dot``, or with a depth of their own
    (``tl.range(num_stages=...)``). The loop with most to load decides; without one, the straight-line code.
    """
    straight, loops, finished, depth = 0.0, [], [], 0
    for line in ttir.splitlines():
        if re.search(r"\bscf\.(for|while)\b", line):
            loops.append(_Loop(depth))
        nbytes = _load_bytes(line)
        if loops:
            loops[-1].nbytes += nbytes
            loops[-1].pipelined |= "tt.dot" in line
        else:
            straight += nbytes
        code = line.partition("loc(")[0]
        depth += code.count("{") - code.count("}")
        while loops and depth <= loops[-1].depth and "}" in code:
            loops[-1].pipelined |= "tt.num_stages" in code
            finished.append(loops.pop())
    ahead = max(1, num_stages - 1)
    best = max((loop.nbytes * (ahead if loop.pipelined else 1) for loop in finished), default=0.0)
    return best or straight or None
