"""A real HTTP endpoint on this machine that speaks OpenAI's chat completions, with faults on request."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FAULTS = ("429", "500", "stall", "truncated", "broken", "reset")


class Endpoint:
    """``reply(messages, seed)`` makes the text. ``fault(digest, attempt)`` names a fault or None, for each request.

    ``served`` lists the digests of requests whose answer was sent whole: what a provider would charge for. One is
    written down before the last bytes go out, so that who has read an answer finds it there.
    """

    def __init__(
        self,
        reply: Callable[[list[dict[str, str]], int | None], str],
        fault: Callable[[str, int], str | None] = lambda digest, attempt: None,
        *,
        key: str | None = None,
        stall: float = 30.0,
        delay: float = 0.0,
        retry_after: str = "0.01",
        port: int = 0,
    ):
        self.reply, self.fault, self.key, self.stall, self.delay = reply, fault, key, stall, delay
        self.retry_after = retry_after
        self.served: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.faults: Counter[str] = Counter()
        self.most_at_once = self._now = 0
        self._attempts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.closing = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                endpoint.handle(self)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        """One request."""
        body = json.loads(http.rfile.read(int(http.headers["Content-Length"])))
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        with self._lock:
            self.bodies.append(body)
            attempt = self._attempts[digest]
            self._attempts[digest] += 1
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            self._answer(http, body, digest, attempt)
        except (BrokenPipeError, ConnectionResetError):
            http.close_connection = True  # the client was killed
        finally:
            with self._lock:
                self._now -= 1

    def _answer(self, http: BaseHTTPRequestHandler, body: dict[str, Any], digest: str, attempt: int) -> None:
        if http.path != "/v1/chat/completions":
            return send_json(http, 404, {"error": {"message": f"no such path {http.path}"}})
        if self.key is not None and http.headers.get("Authorization") != f"Bearer {self.key}":
            sent = http.headers.get("Authorization")
            return send_json(http, 401, {"error": {"message": f"incorrect API key: {sent}"}})
        fault = self.fault(digest, attempt)
        with self._lock:
            self.faults[fault or "none"] += 1
        time.sleep(self.delay)
        if fault in ("429", "500"):
            headers = {"Retry-After": self.retry_after} if fault == "429" else {}
            return send_json(http, int(fault), {"error": {"message": f"fault {fault}"}}, headers)
        if fault == "reset":
            http.close_connection = True
            http.connection.close()
            return None
        if fault is not None and fault.startswith("400"):
            return send_json(http, 400, {"error": {"message": fault.partition(":")[2]}})
        text = self.reply(body["messages"], body.get("seed"))
        if body.get("stream"):
            return self._stream(http, text, fault, body, digest)
        self.served.append(digest)
        return send_json(http, 200, whole(text))

    def _stream(
        self, http: BaseHTTPRequestHandler, text: str, fault: str | None, body: dict[str, Any], digest: str
    ) -> None:
        http.send_response(200)
        http.send_header("Content-Type", "text/event-stream")
        http.send_header("Connection", "close")
        http.end_headers()
        http.close_connection = True
        pieces = [text[i : i + 40] for i in range(0, len(text), 40)] or [""]
        for number, piece in enumerate(pieces):
            if number == len(pieces) // 2:
                if fault == "truncated":
                    return
                if fault == "stall":
                    self.closing.wait(self.stall)
                    return
                if fault == "broken":
                    http.wfile.write(b"data: {not json\n\n")
                    return
            delta = {"role": "assistant", "content": piece} if number == 0 else {"content": piece}
            event(http, [{"index": 0, "delta": delta, "finish_reason": None}])
        event(http, [{"index": 0, "delta": {}, "finish_reason": "stop"}])
        if body.get("stream_options", {}).get("include_usage"):
            event(http, [], usage=usage(text))
        self.served.append(digest)
        http.wfile.write(b"data: [DONE]\n\n")


def usage(text: str) -> dict[str, Any]:
    details = {"cached_tokens": 40}
    counts = {"prompt_tokens": 100, "completion_tokens": len(text), "total_tokens": 100 + len(text)}
    return {**counts, "prompt_tokens_details": details}


def whole(text: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "test"}
    return {**head, "choices": [choice], "usage": usage(text)}


def event(http: BaseHTTPRequestHandler, choices: list[dict[str, Any]], **fields: Any) -> None:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test"}
    chunk = {**head, "choices": choices, **fields}
    http.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def send_json(
    http: BaseHTTPRequestHandler, status: int, body: dict[str, Any], headers: dict[str, str] | None = None
) -> None:
    data = json.dumps(body).encode()
    http.send_response(status)
    http.send_header("Content-Type", "application/json")
    http.send_header("Content-Length", str(len(data)))
    for name, value in (headers or {}).items():
        http.send_header(name, value)
    http.end_headers()
    http.wfile.write(data)


def kept_ids(directory: Path) -> set[str]:
    """Ids of the answers that were on the disk when the process died."""
    database = sqlite3.connect(directory / "replies.sqlite")
    try:
        return {re.search("id ([0-9a-f]{64})", row[0])[1] for row in database.execute("SELECT reply FROM replies")}
    finally:
        database.close()


def asked_ids(bodies: list[dict[str, Any]]) -> list[str]:
    """Ids of the requests that an endpoint was sent."""
    return [hashlib.sha256(json.dumps([b["messages"], b.get("seed")]).encode()).hexdigest() for b in bodies]
