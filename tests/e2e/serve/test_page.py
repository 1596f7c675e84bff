"""The page to watch in a headless Chromium: list, search, live update, verdict page, login; by day and by night.

Photographs go to the test's folder, or to DRKERNEL_SHOTS where that is set, for people to look at.
"""

import importlib.util
import os
import struct
from pathlib import Path

import httpx
import pytest
from test_security import NASTY, TOKEN, NastyPool

from browser import Browser, chromium
from drkernel.report.verdict import page
from drkernel.serve.client import Client
from drkernel.serve.service import WorkerInfo
from drkernel.verdict import Sizes
from service_kit import CountingPool, make_request
from verdicts import speedup_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here: apt-get install chromium"),
    pytest.mark.skipif(
        importlib.util.find_spec("websockets") is None,
        reason="websockets is not installed: pip install 'drkernel[test]'",
    ),
]

ROWS = "document.querySelectorAll('#jobs a').length"


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture
def shots(tmp_path):
    folder = Path(os.environ.get("DRKERNEL_SHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def forget(browser):
    """Leave the page of the test before, which still asks its server, and what was noted of it."""
    browser.open("about:blank")
    browser.errors.clear(), browser.requested.clear()


def size(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


class FastPool(CountingPool):
    """Every candidate is one more than its number times as fast."""

    async def evaluate(self, request):
        speed = 1.0 + int(request.candidate.split()[-1])
        sizes = {
            "checked_at": Sizes(inputs=("x float32[16, 8192]",)),
            "timed_at": Sizes(inputs=("x float32[4096, 8192]",)),
        }
        return (await super().evaluate(request)).model_copy(update={"speedup": speedup_of(speed), **sizes})


def test_list_search_and_live_update(browser, serving, shots):
    server = serving(FastPool())
    browser.open(server.url + "/")
    browser.until("document.querySelector('#plots').hidden")  # no verdict, no chart
    server.service.workers["gpu-node-3"] = WorkerInfo(
        "gpu-node-3", "remote", 8, failed=5, in_a_row=5, quarantined=True, note="RuntimeError: the driver shut down"
    )
    Client(server.url, name="trainer-0").evaluate_many([make_request(k) for k in range(9)])
    forget(browser)
    browser.look(1200, 900)
    browser.open(server.url + "/")
    browser.until(f"{ROWS} == 9")
    assert browser.ask("document.querySelector('#figures').innerText").split()[4:6] == ["9", "done"]
    health = browser.ask("document.querySelector('#workers').innerText")
    assert "quarantined" in health and "the driver shut down" in health
    assert "gpu-node-3 (RuntimeError: the driver shut down)" in browser.ask(
        "document.querySelector('#quarantine').innerText"
    )
    assert browser.ask("document.querySelector('#workers tr').className") == "out"
    assert "correct 9 (100%)" in browser.ask("document.querySelector('#mix-legend').innerText")
    assert browser.ask("document.querySelectorAll('#throughput rect').length") >= 1
    assert browser.ask("document.querySelectorAll('#latency polyline').length") == 2
    light = browser.photograph(shots / "list.png")
    assert size(light)[0] >= 1100

    Client(server.url, name="bench").evaluate_many([make_request(k, task="late") for k in range(100, 104)])
    browser.until(f"{ROWS} == 13")  # by itself
    assert browser.ask("document.querySelector('#live').innerText") == "live"
    speeds = "[...document.querySelectorAll('#jobs tr')].map((row) => row.children[2].innerText)"
    browser.ask("document.querySelector('[data-by=speedup] button').click()")
    fastest = browser.ask(speeds)
    assert fastest[0] == "~104.00\u00d7" and fastest == sorted(fastest, key=lambda text: -float(text[1:-1]))
    browser.ask("document.querySelector('[data-by=speedup] button').click()")
    assert browser.ask(speeds) == fastest[::-1]
    assert browser.ask("document.querySelector('[data-by=speedup]').getAttribute('aria-sort')") == "ascending"
    browser.ask("document.querySelector('[data-by=submitted] button').click()")

    browser.ask("document.querySelector('#task').value = 'late/'; document.querySelector('#search button').click()")
    browser.until(f"{ROWS} == 4")
    assert "late" in browser.ask("location.search")
    browser.ask("document.querySelector('#status').value = 'hack'; document.querySelector('#search button').click()")
    browser.until("document.querySelector('#jobs').innerText.includes('no job matches')")
    browser.ask("document.querySelector('#all').click()")
    browser.until(f"{ROWS} == 13")

    browser.look(390, 844, dark=True)
    browser.open(server.url + "/")
    browser.until(f"{ROWS} == 13")
    assert browser.ask("document.documentElement.scrollWidth") <= 390  # nothing sticks out on a phone
    background = (
        "getComputedStyle(document.documentElement).colorScheme + matchMedia('(prefers-color-scheme: dark)').matches"
    )
    assert browser.ask(background) == "light darktrue"
    dark = browser.photograph(shots / "list-phone-dark.png")
    assert dark != light
    assert not browser.errors, browser.errors
    assert browser.requested and all(url.startswith(server.url) for url in browser.requested)  # needs no internet


def test_a_verdict_page_of_a_hostile_candidate(browser, serving, shots):
    server = serving(NastyPool(), verdict_page=page)
    made = make_request(1)
    task = made.task.model_copy(update={"id": NASTY, "reference": f"# {NASTY}"})
    Client(server.url, name=NASTY).evaluate(made.model_copy(update={"candidate": NASTY, "task": task}))
    server.service.workers[NASTY] = WorkerInfo(NASTY, "remote", 1, note=NASTY)
    forget(browser)
    browser.look(1200, 900)
    browser.open(server.url + "/")
    browser.until(f"{ROWS} == 1")
    assert browser.ask("document.querySelectorAll('img, script:not([src])').length") == 0
    browser.photograph(shots / "hostile-list.png")
    browser.ask("document.querySelector('#jobs a').click()")
    browser.until("location.pathname.startsWith('/jobs/') && document.readyState == 'complete'")
    text = browser.ask("document.body.innerText")
    for part in ("Findings", "One call", "Feedback to the model", "Candidate", "all jobs", NASTY):
        assert part in text, part
    assert browser.ask("document.querySelectorAll('img, script').length") == 0
    assert browser.ask("document.querySelectorAll('.share').length") == 1
    browser.photograph(shots / "verdict.png")
    browser.look(390, 844, dark=True)
    assert browser.ask("document.documentElement.scrollWidth") <= 500
    browser.photograph(shots / "verdict-phone-dark.png")
    assert not browser.errors, browser.errors  # no dialog, no violation of the policy
    assert all(url.startswith(server.url) for url in browser.requested)


def test_a_person_logs_in_with_the_token(browser, serving, shots):
    server = serving(CountingPool(), token=TOKEN)
    Client(server.url, token=TOKEN).evaluate(make_request(1))
    assert httpx.get(server.url + "/").status_code == 401
    browser.look(1200, 900)
    browser.open(server.url + "/")  # leads to the login
    browser.until("!!document.querySelector('input[name=token]')")
    browser.photograph(shots / "login.png")
    browser.ask(f"document.querySelector('input').value = '{TOKEN}'; document.querySelector('button').click()")
    browser.until(f"location.pathname == '/' && {ROWS} == 1")
    assert "drkernel_token" not in browser.ask("document.cookie")  # scripts cannot read it
