"""A chat model as the teacher of cold-start data."""

from __future__ import annotations

from collections.abc import Sequence

from drkernel.episode.chat import Call, Message, Sampling, without_reasoning
from drkernel.solve.refine import Answers
from drkernel.task import Task


class ChatTeacher:
    """Answers one trajectory. ``index`` tells trajectories apart, so that each draws its own answers."""

    def __init__(self, model: Answers, task: Task, index: int, sampling: Sampling = Sampling()):
        self._model, self._task, self._index, self._sampling = model, task, index, sampling

    async def answer(self, messages: Sequence[dict[str, str]]) -> tuple[str, str]:
        """('model', the answer without its reasoning). Raises :class:`~drkernel.episode.chat.ModelError`."""
        call = Call(
            messages=tuple(Message.model_validate(message) for message in messages),
            sampling=self._sampling,
            task_id=self._task.id,
            sample=self._index,
            turn=(len(messages) + 1) // 2,
        )
        reply = await self._model.complete(call)
        return "model", without_reasoning(reply.text)
