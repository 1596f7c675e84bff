"""The page to watch, a page per job, and the login that puts the token into a cookie.

Candidate text is hostile: the live page sets text content only, job pages are escaped where they are made, and the
content security policy allows no inline script anywhere.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from html import escape
from importlib import resources
from urllib.parse import parse_qs

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from drkernel.gym.request import EvalRequest
from drkernel.serve.guard import SECURITY_HEADERS
from drkernel.serve.service import Service
from drkernel.verdict import Verdict

VerdictPage = Callable[[EvalRequest, Verdict], str]
"""makes the HTML page of a verdict; lies above this package, so it is handed in"""

_TYPES = {"watch.css": "text/css", "watch.js": "text/javascript"}
# job pages carry their style inside; scripts stay forbidden
_JOB_POLICY = SECURITY_HEADERS["content-security-policy"].replace("style-src 'self'", "style-src 'unsafe-inline'")

_LOGIN = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>drkernel serve</title>
<link rel="stylesheet" href="/static/watch.css"></head><body><h1>drkernel serve</h1>{message}
<form method="post" action="/login"><input name="token" type="password" aria-label="token" autofocus>
<button>enter</button></form></body></html>"""


def add_pages(app: FastAPI, service: Service) -> None:
    """Routes for people."""

    @app.get("/", include_in_schema=False)
    async def watch() -> HTMLResponse:
        return HTMLResponse(_asset("watch.html"))

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        if name not in _TYPES:
            raise HTTPException(404, "no such file")
        return Response(_asset(name), media_type=_TYPES[name])

    @app.get("/login", include_in_schema=False)
    async def login_form() -> HTMLResponse:
        return HTMLResponse(_LOGIN.format(message=""))

    @app.post("/login", include_in_schema=False)
    async def login(request: Request) -> Response:
        token = app.state.token or ""
        given = parse_qs((await request.body()).decode("utf-8", "replace")).get("token", [""])[0].strip()
        if not token or not hmac.compare_digest(given.encode(), token.encode()):
            return HTMLResponse(_LOGIN.format(message="<p class='bad'>That is not the token.</p>"), status_code=401)
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie("drkernel_token", given, httponly=True, samesite="strict")
        return answer

    @app.get("/jobs/{job_id}", include_in_schema=False)
    async def job_page(job_id: str) -> HTMLResponse:
        page = await asyncio.to_thread(_job_page, app, service, job_id)
        if page is None:
            raise HTTPException(404, "no such job")
        return HTMLResponse(page, headers={"content-security-policy": _JOB_POLICY})

    @app.get("/jobs/{job_id}/source", include_in_schema=False)
    async def source(job_id: str) -> PlainTextResponse:
        request = await asyncio.to_thread(service.store.request, job_id)
        if request is None:
            raise HTTPException(404, "no such job")
        return PlainTextResponse(request.candidate)


def _job_page(app: FastAPI, service: Service, job_id: str) -> str | None:
    job, request = service.store.get(job_id), service.store.request(job_id)
    if job is None or request is None:
        return None
    verdict = service.store.verdict(job_id)
    render: VerdictPage | None = app.state.verdict_page
    if verdict is not None and render is not None:
        return render(request, verdict)
    status = verdict.status if verdict is not None else job.state
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>{escape(job.task_id)}</title></head><body><h1>{escape(job.task_id)}: {escape(status)}</h1>"
        f"<p>attempt {job.attempts}, client {escape(job.client)}</p>"
        f"<pre>{escape(request.candidate)}</pre></body></html>"
    )


def _asset(name: str) -> str:
    return (resources.files("drkernel.serve") / "static" / name).read_text(encoding="utf-8")
