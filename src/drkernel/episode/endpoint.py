"""``openai:NAME``: any endpoint that speaks OpenAI's chat completions protocol: hosted ones, vLLM, SGLang, llama.cpp.

Answers are streamed. This distinguishes a stalled connection from a long answer, and an answer cut off in transit from
one that ended. The API key comes from the environment, is sent to the endpoint's address only, and is never stored or
printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from drkernel.config import ConfigError
from drkernel.episode.records import ContextFull, Finish, ModelCall, ModelError, Reply, Usage, estimated_usage

DEFAULT_URL = "https://api.openai.com/v1"
DEFAULT_KEY_ENV = "OPENAI_API_KEY"
LONGEST = 30
"""An answer may take so many times the timeout between two bytes, so that a stream of keep-alives ends some time."""
RETRY_STATUS = {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
HINTS = {
    301: "; the endpoint moved: give its new address as --base-url",
    308: "; the endpoint moved: give its new address as --base-url",
    401: "; is the key right?",
    402: "; the account is out of credit",
    403: "; the key may not use this model",
    404: "; is the model's name right, and does --base-url end where /chat/completions begins (mostly /v1)?",
}
"""Refusals that every further request would meet too, and what to do."""
_TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size)|maximum.{0,20}(tokens|context)|too many tokens|too long", re.I
)


class OpenAIModel:
    """One model at one address.

    Raises :class:`ConfigError` when the address is not a URL, or the hosted default has no key.
    """

    def __init__(self, model: str, *, base_url: str | None = None, key_env: str | None = None, timeout: float = 120.0):
        import httpx

        self._httpx = httpx
        self._model = model
        url = httpx.URL((base_url or DEFAULT_URL).rstrip("/"))
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigError(
                f"--base-url {base_url!r} is not an address; expected something like http://localhost:8000/v1"
            )
        if url.userinfo or url.query:
            raise ConfigError("--base-url may hold no password and no query: keys come from the environment")
        self.name = f"openai:{model}" if base_url is None else f"openai:{model}@{url}"
        self._key = _key(key_env or DEFAULT_KEY_ENV)
        if self._key is None and (key_env is not None or base_url is None):
            raise ConfigError(f"no key: set {key_env or DEFAULT_KEY_ENV}, or give --base-url for an endpoint without")
        headers = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        self._client = httpx.AsyncClient(
            base_url=str(url),
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, 30.0), pool=None),
            limits=httpx.Limits(max_connections=None),
        )
        self._longest = LONGEST * timeout
        self._budget_field = "max_tokens"
        self._usage_in_stream = True

    async def complete(self, call: ModelCall) -> Reply:
        """Send one request. A failure worth retrying raises :class:`ModelError` with ``retry`` set."""
        started = time.monotonic()
        for _ in range(3):  # an endpoint that refuses a field by name is asked once more without it
            try:
                gathered = await self._request(self._body(call))
            except _Refused as refused:
                if not self._adapt(refused.message):
                    raise self._error(refused) from None
                continue
            return as_reply(call, gathered, self._model, time.monotonic() - started)
        raise ModelError(f"{self.name} refuses the request's fields")

    def _body(self, call: ModelCall) -> dict[str, Any]:
        sampling = call.sampling
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [message.model_dump() for message in call.messages],
            self._budget_field: sampling.max_tokens,
            "stream": True,
        }
        if self._usage_in_stream:
            body["stream_options"] = {"include_usage": True}
        for name, value in (("temperature", sampling.temperature), ("top_p", sampling.top_p), ("seed", call.seed)):
            if value is not None:
                body[name] = value
        return body | sampling.extra

    async def _request(self, body: dict[str, Any]) -> _Gathered:
        try:
            async with (
                asyncio.timeout(self._longest),
                self._client.stream("POST", "/chat/completions", json=body) as response,
            ):
                if response.status_code != 200:
                    text = (await response.aread()).decode("utf-8", "replace")
                    raise _Refused(response.status_code, _message(text), _retry_after(response.headers))
                if "text/event-stream" in response.headers.get("content-type", ""):
                    return await _read_stream(response.aiter_lines())
                return _read_whole(await response.aread())
        except (self._httpx.TimeoutException, TimeoutError) as error:
            raise ModelError(
                f"stalled: {self.name} sent nothing for too long ({type(error).__name__})", retry=True
            ) from None
        except self._httpx.TransportError as error:
            raise ModelError(f"connection: {self._safe(str(error)) or type(error).__name__}", retry=True) from None

    def _adapt(self, message: str) -> bool:
        """Adapt to an error that rejects a request field, by dropping or renaming the field; False when nothing can be
        changed."""
        if "max_completion_tokens" in message and self._budget_field == "max_tokens":
            self._budget_field = "max_completion_tokens"
            return True
        if "stream_options" in message and self._usage_in_stream:
            self._usage_in_stream = False
            return True
        return False

    def _error(self, refused: _Refused) -> ModelError:
        message = self._safe(refused.message)
        if refused.status == 400 and _TOO_LONG.search(message):
            return ContextFull(message)
        if refused.status in RETRY_STATUS:
            return ModelError(f"HTTP {refused.status}: {message}", retry=True, wait=refused.wait)
        hint = HINTS.get(refused.status, "")
        final = refused.status in HINTS
        return ModelError(f"{self.name} answers HTTP {refused.status}: {message}{hint}", final=final)

    def _safe(self, text: str) -> str:
        """Remove the API key from text, in case an endpoint echoes it."""
        return text if self._key is None else text.replace(self._key, "[key]")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"


def _key(variable: str) -> str | None:
    """Read an API key from an environment variable; None when unset or blank. No message ever contains the value."""
    key = os.environ.get(variable, "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise ConfigError(f"{variable} holds no key: a key is printable ASCII without spaces")
    return key or None


class _Refused(Exception):
    """A response whose status is not 200."""

    def __init__(self, status: int, message: str, wait: float | None):
        super().__init__(message)
        self.status, self.message, self.wait = status, message, wait


@dataclass
class _Gathered:
    """The parts of an answer received so far."""

    text: list[str] = field(default_factory=list)
    finish: str | None = None
    model: str = ""
    usage: dict[str, Any] | None = None

    def add(self, data: str | bytes, part: str) -> None:
        """Add a chunk of a stream (``part`` is "delta") or a whole answer ("message")."""
        try:
            chunk = json.loads(data)
        except ValueError:
            raise ModelError("malformed answer: not JSON", retry=True) from None
        if not isinstance(chunk, dict):
            raise ModelError("malformed answer: not a JSON object", retry=True)
        if chunk.get("error"):
            raise ModelError(f"broken answer: {_error_text(chunk['error'])}", retry=True)
        self.model = _text(chunk.get("model")) or self.model
        self.usage = _object(chunk.get("usage")) or self.usage
        choices = chunk.get("choices")
        for choice in choices[:1] if isinstance(choices, list) else []:
            self.text.append(_content(_object(_object(choice).get(part)).get("content")))
            self.finish = _text(_object(choice).get("finish_reason")) or self.finish


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _content(value: Any) -> str:
    """The text of a message: a string, or the parts of a list that are text; nothing else is taken for an answer."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return "".join(_text(part.get("text")) for part in value)
    raise ModelError(f"malformed answer: its content is {type(value).__name__}, not text", retry=True)


def as_reply(call: ModelCall, gathered: _Gathered, model: str, seconds: float) -> Reply:
    """Build the reply to ``call`` from the parts received; ``model`` is the name to use if the endpoint gave none."""
    text = "".join(gathered.text)
    usage = _usage(gathered.usage) or estimated_usage(call, text)
    finish: Finish = gathered.finish if gathered.finish in ("stop", "length") else "unknown"  # type: ignore[assignment]
    return Reply(text=text, finish=finish, usage=usage, model=gathered.model or model, seconds=seconds)


async def _read_stream(lines: AsyncIterator[str]) -> _Gathered:
    """Read server-sent events up to ``[DONE]``. A stream that ends without a finish reason was cut off in transit."""
    gathered = _Gathered()
    async for line in lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            break
        gathered.add(data, "delta")
    if gathered.finish is None:
        raise ModelError("truncated stream: the answer broke off in transit", retry=True)
    return gathered


def _read_whole(data: bytes) -> _Gathered:
    gathered = _Gathered()
    gathered.add(data, "message")
    if gathered.finish is None and not gathered.text:
        raise ModelError("broken answer: it holds no choice", retry=True)
    return gathered


def _usage(raw: dict[str, Any] | None) -> Usage | None:
    """Parse the endpoint's token counts; None when they are missing or malformed."""
    raw = raw or {}
    completion = raw.get("completion_tokens")
    if not isinstance(completion, int):
        return None
    prompt = _count(raw.get("prompt_tokens"))
    cached = _count(_object(raw.get("prompt_tokens_details")).get("cached_tokens"))
    return Usage(prompt=prompt, completion=max(0, completion), cached=min(prompt, cached))


def _count(value: Any) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _message(text: str) -> str:
    """Extract the message of an error body, on one line."""
    try:
        body = json.loads(text)
        text = _error_text(body.get("error", body)) if isinstance(body, dict) else text
    except json.JSONDecodeError:
        pass
    return " ".join(text.split())[:500]


def _error_text(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or error.get("detail") or error)
    return str(error)


def _retry_after(headers: Any) -> float | None:
    """Parse a Retry-After header, a number of seconds or a date, to seconds; None when absent or malformed."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
