"""The executor and Triton's own interpreter, which needs a process of its own, on the conformance cases."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from all_cases import CASES, REACHABLE
from harness import executing
from places import KIT

HERE = KIT / "conformance"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_agrees_with_the_interpreter(tmp_path: Path) -> None:
    """Where Triton's interpreter is right, the executor gives the same within the case's tolerances."""
    names = [name for name, case in CASES.items() if case.interpreter]
    saved = tmp_path / "interpreted.pt"
    environment = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}", "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, str(HERE / "interpreter_dump.py"), str(saved), *names],
        check=True,
        env=environment,
        timeout=1200,
    )
    interpreted = torch.load(saved)
    problems = []
    for name in names:
        theirs = interpreted[name]
        if isinstance(theirs, str):
            problems.append(f"{name}: the interpreter fails: {theirs[:300]}")
            continue
        with executing() as log:
            log.reachable = REACHABLE
            checks = list(CASES[name].run("cpu"))
        REACHABLE.clear()
        for check, other in zip(checks, theirs, strict=True):
            wide = type(check)(check.name, check.got, other, 2 * check.rtol, 2 * check.atol)
            error = wide.error()
            if error is not None:
                problems.append(f"{name}: {error}")
    assert not problems, "\n".join(problems)
