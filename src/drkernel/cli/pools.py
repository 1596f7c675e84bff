"""The pool of a command's evaluations: this machine, or a service elsewhere (``--pool http://HOST:PORT``)."""

from __future__ import annotations

from drkernel.config import ConfigError
from drkernel.gym.request import EvalRequest, Pool
from drkernel.verdict import Verdict

POOL_HELP = "grade by a service, e.g. http://127.0.0.1:8765 (its token in DRKERNEL_TOKEN); default: this machine"

MEMORY_HELP = "GiB that the judge may take for one evaluation; default: a quarter of the machine's memory"


def to_bytes(gib: float | None) -> int | None:
    """Convert an option in GiB to bytes."""
    return None if gib is None else int(gib * 2**30)


def check_pool(url: str | None) -> None:
    """Check that ``url`` is the address of a service.

    Raises:
        ConfigError: it does not begin with http:// or https://.
    """
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigError(f"--pool {url}: give the address of a service, e.g. http://127.0.0.1:8765")


def http_pool(url: str) -> Pool:
    """Return a pool backed by a service; call :func:`check_pool` first."""
    from drkernel.serve.client import HttpPool

    return HttpPool(url)


async def evaluate_at(url: str, request: EvalRequest) -> Verdict:
    """Run one evaluation on a service."""
    pool = http_pool(url)
    try:
        return await pool.evaluate(request)
    finally:
        await pool.close()
