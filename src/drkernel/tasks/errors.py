"""The one error of this room; apart, so that listing tasks does not load torch."""


class TaskError(ValueError):
    """A task that cannot be used; the message names the task or file, the cause and what to change."""
