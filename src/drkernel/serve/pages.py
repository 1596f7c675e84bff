"""The live page, a page per job, and the login that puts the token into a cookie.

Candidate text is hostile: the live page sets text content only, job pages are escaped when they are made, and the
content security policy allows no inline script anywhere.
"""

import asyncio
import hmac
import time
from collections.abc import Callable
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

from fastapi import Body, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drkernel.gym.feedback import feedback
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.serve.guard import SECURITY_HEADERS
from drkernel.serve.service import Service
from drkernel.task import Provenance, Task
from drkernel.verdict import Verdict, printable

REFERENCE = """import torch

ROWS = 1024

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0

def get_inputs():
    return [torch.randn(ROWS, 1024)]

def get_init_inputs():
    return []
"""

CANDIDATE = """import torch, triton
import triton.language as tl

@triton.jit
def fused(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0) * 2.0 + 1.0, mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        fused[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), B=1024)
        return o
"""

REQUEST = EvalRequest(
    task=Task(id="my/relu", reference=REFERENCE, profiles={"tiny": {"ROWS": 64}}, provenance=Provenance(source="file")),
    candidate=CANDIDATE,
    settings=EvalSettings(device="sim:h200", profile="tiny"),
)

_VERDICT = Verdict(status="correct", task_id="my/relu", candidate_sha256="0" * 64, device="sim:h200")
_JOB = "0123456789abcdef01234567"
_SUBMIT = {"requests": [REQUEST.model_dump(mode="json", exclude_defaults=True)]}
_EVALUATE = {
    "task_id": "job-1",
    "reference_code": REFERENCE,
    "kernel_code": CANDIDATE,
    "backend": "triton",
    "timeout": 120,
    "entry_point": "Model",
}


def _body(**examples: tuple[str, Any]) -> Any:
    return Body(openapi_examples={name: {"summary": text, "value": value} for name, (text, value) in examples.items()})


SUBMIT = _body(
    wait=("evaluate one candidate and wait for its verdict", {**_SUBMIT, "wait_s": 60}),
    later=("get an id at once, ask for the verdict later", {**_SUBMIT, "priority": 5}),
)
LEASE = _body(any=("work of any kind, for one of 8 slots", {"worker": "node-7", "slots": 8, "wait_s": 20}))
BEAT = _body(two=("still at work on two jobs", {"worker": "node-7", "jobs": [_JOB, _JOB[::-1]]}))
COMPLETE = _body(done=("a verdict", {"worker": "node-7", "job_id": _JOB, "verdict": _VERDICT.model_dump(mode="json")}))
RELEASE = _body(one=("the machine has been seen to", {"worker": "node-7"}))
LEAVE = _body(lost=("its machine is gone", {"worker": "node-7", "trouble": "the node left the cluster"}))
EVALUATE = _body(one=("an evaluation as KernelGYM's clients send it", _EVALUATE))
BATCH = _body(one=("a batch of one", {"batch_id": "b-1", "tasks": [_EVALUATE]}))
WORKFLOW = _body(one=("an evaluation as a task of a workflow", {"workflow": "kernelbench", "payload": _EVALUATE}))


# ---- The live page, a page per job, and the login that puts the token into a cookie


VerdictPage = Callable[[EvalRequest, Verdict, Markup, Markup], str]
"""makes the HTML page of a verdict, with HTML at its top and before the sources; lies above this package, so it is
handed in"""

_TYPES = {"style.css": "text/css", "watch.css": "text/css", "watch.js": "text/javascript"}
# job pages contain their style; scripts stay forbidden
_JOB_POLICY = SECURITY_HEADERS["content-security-policy"].replace(
    "style-src 'self'", "style-src 'self' 'unsafe-inline'"
)

_templates = Environment(
    loader=PackageLoader("drkernel.serve"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


def _render(template: str, **values: Any) -> str:
    return printable(_templates.get_template(f"{template}.html.j2").render(**values))


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
