"""Says how to install what a command misses.

drkernel's optional packages are grouped in extras. The groups are read from the installed package's own metadata, so
that pyproject.toml stays the only list of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires

OF_COMMAND = {"worker": "serve", "bench": "solve", "coldstart": "solve"}
"""The extra that serves a command as a whole, where it has another name than the command."""
_EXTRA = re.compile(r"^([\w.-]+).*extra == ['\"]([\w.-]+)['\"]")
_DEVELOPERS = {"test", "docs"}


def how_to_get(module: str | None, command: str) -> str | None:
    """Return one sentence on how to install the package that holds ``module``, which ``command`` tried to import.

    None where the module belongs to none of drkernel's extras: its absence is an error of another kind.
    """
    package = (module or "").partition(".")[0].replace("_", "-").lower()
    groups: dict[str, int] = {}
    offering = set()
    for name, extra in _optional():
        groups[extra] = groups.get(extra, 0) + 1
        if name == package:
            offering.add(extra)
    if not offering:
        return None
    wanted = OF_COMMAND.get(command, command)
    extra = wanted if wanted in offering else min(offering, key=lambda name: (groups[name], name))
    return f"this needs the package {package}, which is not installed: pip install 'drkernel[{extra}]'"


def _optional() -> Iterator[tuple[str, str]]:
    """Yield (package, extra) of every optional requirement; nothing when drkernel runs without being installed."""
    try:
        lines = requires("drkernel") or []
    except PackageNotFoundError:
        return
    for line in lines:
        found = _EXTRA.match(line)
        if found is not None and found[2] not in _DEVELOPERS:
            yield found[1].lower().replace("_", "-"), found[2]
