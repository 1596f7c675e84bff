"""The error of this package, in a module of its own so that listing tasks does not load torch."""


class TaskError(ValueError):
    """A task that cannot be used; the message names the task or file, the cause and what to change."""
