"""Every conformance case on the executor, against references in float64 or exact rounding."""

import pytest

from all_cases import CASES, REACHABLE
from drkernel import sim
from harness import executing
from ttir_executor.compiled import Checks, clear_cache
from ttir_executor.lower import jit


def _errors(name: str, checks: Checks) -> list[str]:
    """Wrong values and findings of one case."""
    with executing(checks) as log:
        log.reachable = REACHABLE
        wrong = [error for check in CASES[name].run("cpu") if (error := check.error()) is not None]
    REACHABLE.clear()
    return wrong + [finding.message for finding in log.findings if finding.severity == "error"]


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    errors = _errors(name, Checks())
    assert not errors, "\n".join(errors)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_case_optimised(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short launches run in the quick tier; long ones in optimised code, which must compute the same."""
    monkeypatch.setattr(jit, "PROMOTE_AFTER", 0.0)
    clear_cache()
    errors = _errors(name, Checks())
    assert not errors, "\n".join(errors)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_case_with_sanitizers(name: str) -> None:
    """The build with all checks is other code: it must compute the same."""
    errors = _errors(name, Checks(uninitialized=True, race=True))
    assert not errors, "\n".join(errors)


ON_THE_DEVICE = ("add_masked", "blocks_of_one_element", "descriptors_made_by_the_host", "functions_with_branches",
                 "grids_of_three_dimensions", "matmul_block_pointers", "matmul_descriptors", "matmul_grouped",
                 "narrow_arithmetic_rounds_each_step", "scalar_programs")  # fmt: skip
"""a sample of what differs for the host: types, grids, descriptors, tables of addresses, scalars"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ON_THE_DEVICE else pytest.mark.slow) for name in CASES]
)
def test_case_on_the_device(name: str) -> None:
    """The same cases as host code for a GPU: handles, uploads and launches by command."""
    with sim.device("h100") as dev:
        errors = [error for check in CASES[name].run("cuda") if (error := check.error()) is not None]
        errors += [finding.message for finding in dev.findings if finding.severity == "error"]
    REACHABLE.clear()
    assert not errors, "\n".join(errors)
