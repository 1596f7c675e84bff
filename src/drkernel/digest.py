"""A digest of this package's own source, for what is kept on disk and must not outlive the code that made it."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=4)
def source_digest(*packages: str) -> str:
    """Return a digest of every file of the named packages of ``drkernel``, and of the modules beside them."""
    root = Path(__file__).parent
    files = [*root.glob("*.py"), *(path for name in packages for path in (root / name).rglob("*") if path.is_file())]
    digest = hashlib.sha256()
    for path in sorted(path for path in files if path.suffix != ".pyc"):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()
