"""Pages from the templates beside this file: every value escaped, one stylesheet and one script inside, no network.

A page's own policy admits that script by its hash, so that no text of a candidate could run even if it were not
escaped.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drkernel.gym.feedback import duration, number, of_roofline, percent, times, told_apart
from drkernel.report.sources import coloured


def render(template: str, **values: Any) -> str:
    """The page of ``templates/<template>.html.j2``. A name that the template uses and is not given is an error."""
    return _environment().get_template(f"{template}.html.j2").render(**values).translate(_CONTROLS)


_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"}
"""control characters, which HTML does not allow, as their pictures: an untrained policy writes any bytes"""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("drkernel.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"duration": duration, "number": number, "percent": percent, "times": times, "words": _words,
                     "coloured": coloured, "of_roofline": of_roofline}  # fmt: skip
    templates = resources.files("drkernel.report") / "templates"
    script = (templates / "page.js").read_text(encoding="utf-8")
    made.globals["told_apart"] = told_apart
    made.globals["style"] = Markup((templates / "style.css").read_text(encoding="utf-8"))  # our own files
    made.globals["script"] = Markup(script)
    made.globals["script_hash"] = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return made


def _words(name: str) -> str:
    """``runtime_error`` in a form for people: 'runtime error'."""
    return name.replace("_", " ")
