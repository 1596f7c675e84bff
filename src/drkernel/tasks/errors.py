"""The error of this package, in a module of its own so that listing tasks does not load torch."""

from drkernel.config import ConfigError


class TaskError(ConfigError):
    """A task that cannot be used; the message names the task or file, the cause and what to change."""
