"""A hook of mkdocs: links that leave docs/ are shown as names, since the site holds the documents alone.

Such a link must lead to a file of the repository; one that does not fails the build under ``--strict``. Markers of code
blocks (``python gpu``, see tests/e2e/test_page_code.py) are left out.
"""

import logging
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:#]+)(#[^)]*)?\)")
MARKED = re.compile(r"^```(\w+) .*$", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|exc):(?=<code)")
log = logging.getLogger("mkdocs.hooks.docs_links")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace links to files outside of docs/ by their text."""
    folder = ROOT / "docs" / os.path.dirname(page.file.src_uri)

    def shown(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0] if target.is_file() else f"`{link[1].strip('`')}`" if target.is_dir() else link[0]
        if not target.exists():
            log.warning("%s links to %s, which is not in the repository", page.file.src_uri, link[2])
        return f"`{link[1].strip('`')}`"

    return LINK.sub(shown, MARKED.sub(r"```\1", markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Drop the names of roles in docstrings (``:class:``) in front of what they mark."""
    return ROLE.sub("", html)
