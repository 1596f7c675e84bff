"""Facts of a call at own sizes, from its journal."""

from types import SimpleNamespace
from typing import Any

from drkernel.gym.judge.seen import _parts


def test_an_operator_that_reads_an_empty_result_has_no_part_of_it() -> None:
    def reads(label: str, *storages: int) -> Any:
        return SimpleNamespace(label=label, inputs=[SimpleNamespace(storage=one, nbytes=8 * one) for one in storages])

    made = {0: 0.0, 2: 32.0}
    assert _parts([reads("aten.cat", 0, 2), reads("aten.sum", 0), reads("aten.add", 1)], made) == {"aten.cat": 0.5}
