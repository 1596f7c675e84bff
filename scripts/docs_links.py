"""A hook of mkdocs: links that leave docs/ are shown as names, since the site holds the documents alone.

Such a link must lead to a file of the repository; one that does not fails the build under ``--strict``. Markers of code
blocks (``python gpu``, see tests/e2e/test_page_code.py) are left out. Below a paragraph that is a link to a CSV file
stands that file as a table; docs/tables.js gives it a search field.
"""

import csv
import html as entities
import logging
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:#]+)(#[^)]*)?\)")
MARKED = re.compile(r"^```(\w+) .*$", re.MULTILINE)
SHEET = re.compile(r'<p><a href="([\w./-]+\.csv)">[^<]*</a></p>')
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


def on_page_content(html: str, *, page: Any = None, **_: Any) -> str:
    """Put CSV files below the links to them, and drop the names of roles in docstrings (``:class:``)."""
    folder = ROOT / "docs" if page is None else ROOT / "docs" / os.path.dirname(page.file.src_uri)
    return ROLE.sub("", SHEET.sub(lambda link: link[0] + sheet(folder / link[1]), html))


def sheet(path: Path) -> str:
    """A CSV file as a table; what stands in backquotes is code."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)

    def line(cells: list[str], tag: str) -> str:
        texts = (re.sub("`([^`]*)`", r"<code>\1</code>", entities.escape(cell)) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{text}</{tag}>" for text in texts) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f'<div class="searchable"><table><thead>{line(head, "th")}</thead><tbody>{body}</tbody></table></div>'
