"""The pool of a command's evaluations: this machine, or a service elsewhere (``--pool http://HOST:PORT``)."""

from __future__ import annotations

from urllib.parse import urlsplit

from drkernel.config import ConfigError
from drkernel.gym.request import EvalRequest, Pool
from drkernel.verdict import Verdict

POOL_HELP = "grade by a service, e.g. http://127.0.0.1:8765 (its token in DRKERNEL_TOKEN); default: this machine"

MEMORY_HELP = "GiB that the judge may take for one evaluation; default: a quarter of the machine's memory"

MOST_GIB = 2.0**20

HOST_HELP = (
    "a simulated GPU's host: cloud, modal, ..., or seconds of one small operator there (12.5us; doctor --host), "
    "as in sim:h200@12.5us"
)

TOTAL_HELP = "GiB that all evaluations at once may hold; default: three quarters of the machine's memory"


def to_bytes(gib: float | None) -> int | None:
    """Convert an option in GiB to bytes; more than any machine has is taken as that."""
    return None if gib is None else int(min(gib, MOST_GIB) * 2**30)


def in_host(device: str, host: str | None) -> str:
    """The name of a card or a device with its host behind it.

    Raises:
        ValueError: no such host, or a device that has a host of its own.
    """
    if host is None:
        return device
    from drkernel.sim.spec import host_name

    if "@" in device or device.startswith("cuda"):
        raise ValueError(f"--host: {device} has a host")
    return f"{device}@{host_name(host)}"


def check_pool(url: str | None) -> None:
    """Check that ``url`` is the address of a service.

    Raises:
        ConfigError: it is not of the form http://HOST[:PORT] or https://HOST[:PORT].
    """
    if url is not None and not _is_address(url):
        raise ConfigError(f"{url!r} is not the address of a service, which looks like http://127.0.0.1:8765")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


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
