"""Sources on pages: colours change no character, and what stands side by side is what changed."""

import html
import re
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from browser import Browser, chromium
from drkernel.report.render import coloured, render, side_by_side

PIECES = [
    "def f(x):",
    "    return 'a' + x",
    '"""',
    "# <b>&amp;</b>",
    "\\",
    "\x0c",
    "\u2028",
    "x = 1\r",
    "\t",
    "",
    "é☃",
    "@jit",
]


coloured("x")  # the first call loads Pygments, longer than a drawn example may take


def text(line):
    return html.unescape(re.sub(r"<[^>]*>", "", str(line)))


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), max_size=8))
def test_colours_change_no_character(pieces):
    source = "\n".join(pieces)
    lines = coloured(source)
    assert [text(line) for line in lines] == re.sub("\r\n?", "\n", source).removesuffix("\n").split("\n") or not source
    assert all(set(re.findall(r"<(/?\w+)", line)) <= {"span", "/span"} for line in lines)


@given(st.lists(st.sampled_from("abcdef"), max_size=14), st.lists(st.sampled_from("abcdef"), max_size=14))
def test_the_rows_hold_every_change(old, new):
    rows = side_by_side("\n".join(old), "\n".join(new))
    for side, lines, number in (("old", old, "left"), ("new", new, "right")):
        shown = {getattr(row, number): text(getattr(row, side)) for row in rows if getattr(row, number)}
        assert all(lines[at - 1] == line for at, line in shown.items())
    kept_old = [line for at, line in enumerate(old, 1) if at not in {row.left for row in rows if row.kind == "changed"}]
    kept_new = [
        line for at, line in enumerate(new, 1) if at not in {row.right for row in rows if row.kind == "changed"}
    ]
    assert kept_old == kept_new and bool(rows) == (old != new)


@pytest.mark.slow
def test_a_browser_sorts_filters_and_opens_links(tmp_path):
    pytest.importorskip("websockets")
    if chromium() is None:
        pytest.skip("no Chromium on this machine")
    rows = "".join(f"<tr><td>task {9 - k}</td><td>{[3, 11, 2][k % 3]}.5×</td></tr>" for k in range(10))
    page = render("page").replace(
        "<script>",
        f"""
      <table class=sortable><tr><th>task</th><th>speedup</th></tr>{rows}</table>
      <details><summary>more</summary><p id=deep>text</p></details>
      <script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"><script>""",
        1,
    )
    path = tmp_path / "page.html"
    path.write_text(page)
    with closing(Browser()) as tab:
        tab.open(path.as_uri() + "#deep")
        tab.until("document.readyState == 'complete' && !!document.querySelector('input')")
        column = "Array.from(document.querySelector('table').rows).slice(1).filter(r => !r.hidden)"
        speeds = f"{column}.map(r => r.cells[1].textContent).join(' ')"
        tab.ask("document.querySelectorAll('th')[1].click()")
        assert tab.ask(speeds) == " ".join(["2.5×"] * 3 + ["3.5×"] * 4 + ["11.5×"] * 3)
        tab.ask("document.querySelectorAll('th')[1].click()")
        assert tab.ask(speeds).startswith("11.5×")
        tab.ask(
            "const box = document.querySelector('input'); box.value = 'TASK 7'; box.dispatchEvent(new Event('input'))"
        )
        assert tab.ask(f"{column}.length") == 1
        assert tab.ask("document.querySelector('details').open") is True
        assert tab.ask("typeof window.hacked") == "undefined"
