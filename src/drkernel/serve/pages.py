"""The live page, a page per job, and the login that puts the token into a cookie.

Candidate text is hostile: the live page sets text content only, job pages are escaped when they are made, and the
content security policy allows no inline script anywhere.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drkernel.gym.feedback import feedback
from drkernel.gym.request import EvalRequest
from drkernel.serve.guard import SECURITY_HEADERS
from drkernel.serve.service import Service
from drkernel.verdict import Verdict

VerdictPage = Callable[[EvalRequest, Verdict, Markup, Markup], str]
"""makes the HTML page of a verdict, with HTML at its top and before the sources; lies above this package, so it is
handed in"""

_TYPES = {"watch.css": "text/css", "watch.js": "text/javascript"}
# job pages contain their style; scripts stay forbidden
_JOB_POLICY = SECURITY_HEADERS["content-security-policy"].replace(
    "style-src 'self'", "style-src 'self' 'unsafe-inline'"
)

_templates = Environment(
    loader=PackageLoader("drkernel.serve"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


def _render(template: str, **values: Any) -> str:
    return _templates.get_template(f"{template}.html.j2").render(**values)


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
        return HTMLResponse(_render("login", refused=False))

    @app.post("/login", include_in_schema=False)
    async def login(request: Request) -> Response:
        token = app.state.token or ""
        given = parse_qs((await request.body()).decode("utf-8", "replace")).get("token", [""])[0].strip()
        if not token or not hmac.compare_digest(given.encode(), token.encode()):
            return HTMLResponse(_render("login", refused=True), status_code=401)
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
    asked = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(job.submitted))
    render: VerdictPage | None = app.state.verdict_page
    if verdict is not None and render is not None:
        parts: Any = _templates.get_template("parts.html.j2").module
        return render(request, verdict, parts.bar(job, asked), parts.told(feedback(verdict, source=request.candidate)))
    status = verdict.status if verdict is not None else {"leased": "running", "queued": "waiting"}.get(job.state)
    return _render("job", job=job, asked=asked, status=status or job.state, candidate=request.candidate)


def _asset(name: str) -> str:
    return (resources.files("drkernel.serve") / "static" / name).read_text(encoding="utf-8")
