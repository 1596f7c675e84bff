"""What an attacker, a broken client or a slow one can do to the service: nothing but be refused."""

import contextlib
import http.client
import os
import re
import socket
import subprocess
import time

import httpx
import pytest

from drkernel.report.verdict import page
from drkernel.serve.client import Client
from drkernel.serve.guard import GuardError, check_binding
from drkernel.verdict import Correctness, Finding, Profile, ProfileRow
from farm import PYTHON
from service_kit import CountingPool, make_request, make_verdict

TOKEN = "a-token-long-enough-for-tests"
NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def address(server):
    return "127.0.0.1", int(server.url.rpartition(":")[2])


def status_of(connection):
    """Read one whole response: its headers and its body may arrive apart."""
    with http.client.HTTPResponse(connection) as response:
        response.begin()
        response.read()
        return response.status


def closed_after(connection, seconds):
    """Seconds until the other side closes; fails when it does not."""
    begun = time.monotonic()
    connection.settimeout(seconds)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        raise AssertionError(f"still open after {seconds} s") from None
    return time.monotonic() - begun


def test_every_route_but_the_open_ones_wants_the_token(serving):
    server = serving(token=TOKEN)
    document = httpx.get(server.url + "/openapi.json", headers={"authorization": f"Bearer {TOKEN}"}).json()
    routes = [(method, path) for path, methods in document["paths"].items() for method in methods]
    routes += [("get", "/"), ("get", "/jobs/ab"), ("get", "/jobs/ab/source"), ("get", "/openapi.json"), ("put", "/x")]
    assert len(routes) > 20
    client = httpx.Client(base_url=server.url)
    wrong = (
        {}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"authorization": "Basic " + TOKEN},
        {"cookie": "drkernel_token=x"},
    )  # fmt: skip
    for method, path in routes:
        if path in ("/health", "/ready"):
            continue
        for headers in wrong:
            answer = client.request(method, path.replace("{", "").replace("}", ""), headers=headers)
            assert answer.status_code == 401, (method, path)
            assert TOKEN not in answer.text
    for name in ("style.css", "watch.css", "watch.js"):
        assert client.get(f"/static/{name}").status_code == 200
    client.close()


def test_slow_headers_are_cut_off(serving):
    server = serving(listen_options={"header_s": 0.4})
    for first in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "):
        with socket.create_connection(address(server)) as connection:
            connection.sendall(first)
            assert closed_after(connection, 5) < 3
    with socket.create_connection(address(server)) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(200):  # a byte now and then does not help
            connection.sendall(b"X")
            time.sleep(0.02)
        raise AssertionError("a trickle of headers was waited for")
    with socket.create_connection(address(server)) as connection:
        request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        connection.sendall(request)
        assert status_of(connection) == 200
        time.sleep(0.6)  # an idle connection is not a slow one
        connection.sendall(request)
        assert status_of(connection) == 200
        connection.sendall(request[:20])  # but its next request is due
        assert closed_after(connection, 5) < 3
    assert httpx.get(server.url + "/health").status_code == 200


def test_endless_headers_are_cut_off(serving):
    server = serving()
    with socket.create_connection(address(server)) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET / HTTP/1.1\r\n")
        for k in range(200):
            connection.sendall(f"X-{k}: {'y' * 4000}\r\n".encode())
            time.sleep(0.001)
        raise AssertionError("800 KB of headers were taken")


def test_slow_and_endless_bodies_are_refused(serving):
    server = serving(body_s=0.3, max_body_mb=10_000 / 2**20)
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    with socket.create_connection(address(server)) as connection:
        connection.sendall(head + b"content-length: 100\r\n\r\n{")
        connection.settimeout(5)
        assert status_of(connection) == 408
        closed_after(connection, 5)
    with socket.create_connection(address(server)) as connection:
        connection.sendall(head + b"content-length: 99999999999\r\n\r\n{")
        connection.settimeout(5)
        assert status_of(connection) == 413
    chunks = iter([b"x" * 4000] * 5)
    assert httpx.post(server.url + "/v1/jobs", content=chunks).status_code == 413
    assert httpx.post(server.url + "/v1/jobs", content=b"x" * 10_001).status_code == 413
    for length in ("-1", "1e3", "²", "0x10"):
        with socket.create_connection(address(server)) as connection:
            connection.sendall(head + f"content-length: {length}\r\n\r\n".encode())
            connection.settimeout(5)
            assert status_of(connection) == 400


def test_pages_of_other_sites_cannot_ask(serving):
    server = serving()
    with httpx.Client(base_url=server.url) as client:
        for host in ("evil.example", "evil.example:8765", "127.0.0.1.evil.example", "[evil]", "[::1].evil.example", ""):
            assert client.get("/v1/state", headers={"host": host}).status_code == 403, host
        for host in ("localhost:1", "127.0.0.1", "[::1]:8765", "LOCALHOST"):
            assert client.get("/v1/state", headers={"host": host}).status_code == 200, host
    with socket.create_connection(address(server)) as connection:
        connection.sendall(b"GET /v1/state HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n")
        assert status_of(connection) == 403
    submit = {"requests": [make_request(1).model_dump(mode="json")]}
    evil = httpx.post(server.url + "/v1/jobs", json=submit, headers={"origin": "https://evil.example"})
    assert evil.status_code == 403
    assert httpx.post(server.url + "/v1/jobs", json=submit, headers={"origin": server.url}).status_code == 200


def nasty_verdict(request):
    row = ProfileRow(name=NASTY, owner="custom", calls=1, seconds=1e-6, share=1.0)
    profile = Profile(kind="modelled", device=NASTY, rows=(row,), total_seconds=1e-6, elapsed_seconds=2e-6)
    return make_verdict(request, "hack", error=NASTY).model_copy(
        update={
            "findings": (Finding(kind=NASTY, severity="hack", message=NASTY, evidence={NASTY: NASTY}),),
            "profile": profile,
            "stdout": NASTY,
            "correctness": Correctness(checked_calls=1, passed_calls=0, message=NASTY),
        }
    )


class NastyPool(CountingPool):
    async def evaluate(self, request):
        return nasty_verdict(request)


def test_hostile_names_and_texts_are_escaped_on_every_page(serving):
    server = serving(NastyPool(), verdict_page=page)
    made = make_request(1)
    request = made.model_copy(
        update={"candidate": NASTY, "task": made.task.model_copy(update={"id": NASTY, "reference": f"# {NASTY}"})}
    )
    verdict = Client(server.url, name="<script>alert(3)</script>").evaluate(request)
    assert verdict.task_id == NASTY
    (job,) = httpx.get(server.url + "/v1/jobs").json()["jobs"]
    for path in ("/", f"/jobs/{job['id']}", f"/jobs/{job['id']}?x={NASTY}", f"/jobs/{NASTY}"):
        answer = httpx.get(server.url + path)
        assert answer.headers["content-type"].startswith(("text/html", "application/json"))
        text = answer.text if "html" in answer.headers["content-type"] else ""
        assert "<script>alert" not in text and "<img" not in text
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "unsafe-eval" not in policy
        assert re.search(r"script-src 'self'(;|$)", policy)  # never inline
        assert answer.headers["x-content-type-options"] == "nosniff"
    shown = httpx.get(f"{server.url}/jobs/{job['id']}").text
    assert shown.count("&lt;script&gt;alert(1)") >= 5  # title, source, finding, profile, error
    assert httpx.get(f"{server.url}/jobs/{job['id']}/source").headers["content-type"].startswith("text/plain")


def test_waiting_jobs_have_a_page_too_and_it_is_escaped(serving):
    server = serving(slots=0)
    made = make_request(1)
    request = made.model_copy(update={"task": made.task.model_copy(update={"id": NASTY}), "candidate": NASTY})
    body = {"requests": [request.model_dump(mode="json")]}
    (job,) = httpx.post(server.url + "/v1/jobs", json=body, headers={"x-client": "<b>me</b>"}).json()["jobs"]
    text = httpx.get(f"{server.url}/jobs/{job['id']}").text
    assert "<script>alert" not in text and "<img" not in text and "<b>me" not in text and "&lt;b&gt;me" in text


def test_paths_do_not_leave_their_folder(serving):
    server = serving()
    for path in ("/static/../app.py", "/static/%2e%2e%2fapp.py", "/static/app.py", "/static/..%5capp.py",
                 "/static//etc/passwd", "/jobs/..%2f..%2fetc%2fpasswd", "/v1/jobs/..%2f..%2f..%2fetc%2fpasswd",
                 "/results/..%2f..%2fetc%2fpasswd", "/static/watch.js%00.css"):  # fmt: skip
        with socket.create_connection(address(server)) as connection:  # httpx would tidy the path
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while data := connection.recv(65536):
                answer += data
        assert answer.split()[1] in (b"404", b"422", b"400"), path
        assert b"root:" not in answer and b"import" not in answer


def serve_process(tmp_path, *arguments, env=None, **options):
    command = [PYTHON, "-m", "drkernel", "serve", "--slots", "0", "--store", str(tmp_path / "s.sqlite")]
    clean = {key: value for key, value in os.environ.items() if key != "DRKERNEL_TOKEN"}
    return subprocess.Popen(
        [*command, *arguments], env={**clean, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, **options,
    )  # fmt: skip


@pytest.mark.parametrize("token", ["\u043a" * 16, "with a blank in it", "sixteen of them\n", "short"])
def test_a_token_that_no_header_can_carry_is_refused_at_the_start(token):
    with pytest.raises(GuardError, match="16" if token == "short" else None):
        check_binding("127.0.0.1", token)


@pytest.mark.slow
def test_the_command_refuses_to_listen_to_everybody_without_a_token(tmp_path):
    process = serve_process(tmp_path, "--host", "0.0.0.0")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 2 and "DRKERNEL_TOKEN" in out
    process = serve_process(tmp_path, "--host", "0.0.0.0", env={"DRKERNEL_TOKEN": "short"})
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 2 and "16 characters" in out and "short to be" in out


@pytest.mark.slow
def test_no_secret_reaches_the_log_or_the_command_line(tmp_path):
    process = serve_process(tmp_path, "--port", "0", env={"DRKERNEL_TOKEN": TOKEN})
    try:
        url = process.stdout.readline().split()[-1]
        with open(f"/proc/{process.pid}/cmdline", "rb") as file:
            assert TOKEN.encode() not in file.read()
        wrong = "a-guessed-token-of-somebody"
        for secret in (TOKEN, wrong):
            for path in ("/v1/jobs", "/nowhere", "/"):
                httpx.get(url + path, headers={"authorization": f"Bearer {secret}"})
            httpx.post(url + "/login", data={"token": secret})
            httpx.post(url + "/v1/jobs", content=b"{", headers={"authorization": f"Bearer {secret}"})
            httpx.get(f"{url}/v1/jobs?token={secret}", headers={"cookie": f"drkernel_token={secret}"})
    finally:
        process.terminate()
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert TOKEN not in out and wrong not in out
