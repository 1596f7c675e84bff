"""Steers Triton's tuner in the candidate's process towards configurations that it chose elsewhere.

The configuration that was fastest at the task's own sizes must be correct where answers are compared. This process is
not asked whether it was really chosen: the device sees the launches.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

Wanted = tuple[dict[str, str], int, int]
"""constexprs by name as text, warps, stages"""


def prefer(wanted: Sequence[Any]) -> None:
    """Restrict every tuner of this process to the wanted configurations among its own, if it has any."""
    from triton.runtime.autotuner import Autotuner

    choices: list[Wanted] = [(dict(constexprs), int(warps), int(stages)) for constexprs, warps, stages in wanted]
    original = Autotuner.prune_configs

    @functools.wraps(original)
    def prune_configs(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        kept = original(tuner, *args, **kwargs)
        return [config for config in kept if any(_is(config, choice) for choice in choices)] or kept

    Autotuner.prune_configs = prune_configs


def _is(config: Any, choice: Wanted) -> bool:
    constexprs, warps, stages = choice
    given = {name: repr(value) for name, value in config.kwargs.items()}
    same = all(constexprs.get(name) == text for name, text in given.items())
    return same and config.num_warps == warps and config.num_stages == stages
