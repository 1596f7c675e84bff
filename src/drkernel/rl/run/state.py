"""The state that a run keeps between two sittings: the record that every checkpoint holds."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drkernel.config import ConfigError

Stage = Literal["copying", "sft", "rl"]
"""Stages that train, in order; making data comes before them and has files of its own."""


class BestStep(BaseModel):
    """The evaluation with the greatest held-out reward so far."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    step: int
    """RL step after which the evaluation was made."""
    reward: float
    """Mean reward of the held-out tasks."""
    fast_12: float | None = Field(alias="fast_1.2")
    """Share of held-out tasks solved 1.2 times faster than the reference."""


def _no_steps() -> dict[Stage, int]:
    return {"copying": 0, "sft": 0, "rl": 0}


class RunState(BaseModel):
    """Everything about a run except its weights. Assigning a value of another type is an error."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    stage: Stage = "copying"
    """The current stage."""
    step: int = Field(0, ge=0)
    """Finished steps of that stage."""
    seconds: float = Field(0.0, ge=0)
    """Wall seconds of all sittings up to the checkpoint."""
    tokens: int = Field(0, ge=0)
    """Tokens sampled."""
    evaluations: int = Field(0, ge=0)
    """Answers graded."""
    prompts: int = Field(0, ge=0)
    """Prompts of RL drawn so far, those that were replaced included."""
    steps: dict[Stage, int] = Field(default_factory=_no_steps)
    """Finished steps of each stage."""
    before: dict[str, Any] | None = None
    """The held-out evaluation before RL, as logged."""
    after: dict[str, Any] | None = None
    """The held-out evaluation after RL, as logged."""
    best: BestStep | None = None
    """The best evaluation, whose weights are exported as ``best``."""
    schedule: dict[str, Any] | None = None
    """State of the learning-rate schedule, if it has any."""
    sizes: dict[str, int] = Field(default_factory=dict)
    """Bytes of the run's append-only files at the checkpoint."""
    stopped_because: str | None = None
    """Why RL ended before its last step."""

    def begin(self, stage: Stage) -> None:
        """Start ``stage`` at its first step."""
        self.stage, self.step = stage, 0

    def advance(self, done: int) -> None:
        """Record that ``done`` steps of the current stage are finished."""
        self.step = done
        self.steps[self.stage] = done

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able dict that :meth:`read` accepts."""
        return self.model_dump(by_alias=True)

    @staticmethod
    def read(data: dict[str, Any], where: object) -> RunState:
        """Read the record of a checkpoint. Raises :class:`ConfigError` naming ``where`` for another version."""
        try:
            return RunState.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            raise ConfigError(
                f"checkpoint {where} is not of this version of drkernel ({key}: {first['msg']}); start the run anew "
                "under another name (name=...)"
            ) from None
