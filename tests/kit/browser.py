"""A headless Chromium over its DevTools protocol: open a page, ask it things, photograph it."""

import base64
import contextlib
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def chromium():
    """The path of a Chromium; None when there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def rest(page):
    """A page of ours without its own script and the policy that admits it, once each."""
    policy = r'<meta http-equiv="Content-Security-Policy"[^>]*>'
    head, count = re.subn(policy, "", page)
    left, scripts = re.subn(r"<script>// Tables that.*?</script>", "", head, flags=re.DOTALL)
    assert count == scripts == 1
    return left


class Browser:
    """One tab. ``errors`` has what the console and the content security policy complained about."""

    def __init__(self):
        from websockets.sync.client import connect

        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [
                chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--remote-debugging-port=0", f"--user-data-dir={self._profile.name}", "--no-first-run",
                "--disable-background-networking", "about:blank",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._numbers = itertools.count(1)
        self.errors, self.requested = [], []
        port = self._port()
        import httpx

        tabs = httpx.get(f"http://127.0.0.1:{port}/json", timeout=20).json()
        url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        self._open = contextlib.ExitStack()
        self._socket = self._open.enter_context(connect(url, max_size=1 << 26))
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _port(self):
        file = Path(self._profile.name) / "DevToolsActivePort"
        deadline = time.time() + 40
        while time.time() < deadline:
            with contextlib.suppress(OSError, IndexError, ValueError):
                return int(file.read_text().split()[0])
            time.sleep(0.05)
        raise RuntimeError("Chromium did not start")

    def call(self, method, **parameters):
        """One command; its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=30))
            self._note(message)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def _note(self, message):
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"].get("text"))
        elif message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif message.get("method") == "Page.javascriptDialogOpening":
            self.errors.append("dialog: " + parameters["message"])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])

    def look(self, width=1200, height=900, dark=False):
        """Size of the window, and whether the reader prefers dark pages."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url):
        """Go there."""
        self.call("Page.navigate", url=url)

    def ask(self, expression):
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def until(self, expression, seconds=20):
        """Wait for an expression to become true; its value."""
        deadline = time.time() + seconds
        while time.time() < deadline:
            with contextlib.suppress(RuntimeError):
                if value := self.ask(expression):
                    return value
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {expression}; errors {self.errors}")

    def photograph(self, path):
        """A PNG of the whole page; its bytes."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        data = base64.b64decode(shot["data"])
        Path(path).write_bytes(data)
        return data

    def close(self):
        """End it."""
        self._open.close()
        self._process.terminate()
        self._process.wait(20)
        self._profile.cleanup()
