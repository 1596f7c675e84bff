"""Every conformance case on the executor, against references in float64 or exact rounding."""

from __future__ import annotations

import sys
from pathlib import Path

import kernels_blocks  # noqa: F401
import kernels_casts  # noqa: F401
import kernels_elementwise  # noqa: F401
import pytest
from conformance_cases import CASES

from drkernel.sim.executor import Checks

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness import executing


def _parameters() -> list:
    return [pytest.param(name, marks=[pytest.mark.slow] if case.slow else []) for name, case in CASES.items()]


@pytest.mark.parametrize("name", _parameters())
def test_case(name: str) -> None:
    with executing() as log:
        errors = [error for check in CASES[name].run("cpu") if (error := check.error()) is not None]
    assert not errors, "\n".join(errors)
    assert not log.kinds(), log.findings


@pytest.mark.slow
@pytest.mark.parametrize("name", _parameters())
def test_case_with_sanitizers(name: str) -> None:
    """The build with all checks is other code: it must compute the same."""
    with executing(Checks(uninitialized=True, race=True)) as log:
        errors = [error for check in CASES[name].run("cpu") if (error := check.error()) is not None]
    assert not errors, "\n".join(errors)
    assert not log.kinds(), log.findings
