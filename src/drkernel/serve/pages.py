"""The live page, a page per job, and the login that puts the token into a cookie.

Candidate text is hostile: the live page sets text content only, job pages are escaped when they are made, and the
content security policy allows no inline script anywhere.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable
from html import escape
from importlib import resources
from urllib.parse import parse_qs

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from drkernel.gym.feedback import feedback
from drkernel.gym.request import EvalRequest
from drkernel.serve.guard import SECURITY_HEADERS
from drkernel.serve.service import Service
from drkernel.serve.store import Job
from drkernel.verdict import Verdict

VerdictPage = Callable[[EvalRequest, Verdict, str, str], str]
"""makes the HTML page of a verdict, with HTML at its top and before the sources; lies above this package, so it is
handed in"""

_TYPES = {"watch.css": "text/css", "watch.js": "text/javascript"}
# job pages contain their style; scripts stay forbidden
_JOB_POLICY = SECURITY_HEADERS["content-security-policy"].replace("style-src 'self'", "style-src 'unsafe-inline'")

_LOGIN = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>drkernel serve</title>
<link rel="stylesheet" href="/static/watch.css"></head><body><h1>drkernel serve</h1>{message}
<p>This service asks for its token.</p>
<form method="post" action="/login"><input name="token" type="password" aria-label="token" autofocus>
<button>enter</button></form></body></html>"""


def add_pages(app: FastAPI, service: Service) -> None:
    """Add the routes for people."""

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
        told = escape(feedback(verdict, source=request.candidate))
        after = f"<h2>Feedback to the model</h2><div class='scroll'><pre>{told}</pre></div>"
        return render(request, verdict, _bar(job), after)
    status = verdict.status if verdict is not None else {"leased": "running", "queued": "waiting"}.get(job.state, "")
    refresh = "<meta http-equiv='refresh' content='2'>" if job.state in ("queued", "leased") else ""
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'>{refresh}"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(job.task_id)}</title><style>{_WAITING_STYLE}</style></head><body>{_bar(job)}"
        f"<h1>{escape(job.task_id)}: {escape(status or job.state)}</h1>"
        f"<h2>Candidate</h2><pre>{escape(request.candidate)}</pre></body></html>"
    )


def _bar(job: Job) -> str:
    """Return the line above a job: the way back, the client and time, and the duration."""
    parts = [f"client {job.client}", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(job.submitted))]
    if job.priority:
        parts.append(f"priority {job.priority}")
    if job.started is not None:
        parts.append(f"waited {job.started - job.submitted:.2f} s")
    if job.started is not None and job.finished is not None:
        parts.append(f"ran {job.finished - job.started:.2f} s")
    if job.attempts > 1:
        parts.append(f"attempt {job.attempts}")
    return (
        f"<p class='dim'><a href='/'>all jobs</a> · {escape(' · '.join(parts))} · "
        f"<a href='/jobs/{job.id}/source'>source</a> · <a href='/v1/jobs/{job.id}'>JSON</a></p>"
    )


_WAITING_STYLE = """
:root { color-scheme: light dark; } .dim { color: #888; } h1 { font-size: 1.3rem; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
pre { overflow-x: auto; font: 13px/1.45 ui-monospace, monospace; }
"""


def _asset(name: str) -> str:
    return (resources.files("drkernel.serve") / "static" / name).read_text(encoding="utf-8")
