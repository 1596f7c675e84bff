"""The Python of docs/serve.md runs as it stands, against a live service."""

import re

from places import DOCS
from service_kit import CountingPool, make_request

PAGE = (DOCS / "serve.md").read_text(encoding="utf-8")


def test_the_clients_example_runs(serving):
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    address = "http://127.0.0.1:8765"
    assert address in block
    pool, requests = CountingPool(), [make_request(number) for number in range(3)]
    scope = {"request": requests[0], "requests": requests}
    exec(compile(block.replace(address, serving(pool).url), "serve.md", "exec"), scope)
    assert scope["verdict"].is_correct and [v.is_correct for v in scope["verdicts"]] == [True] * 3
    assert scope["job"].state == "done"
    assert set(pool.calls.values()) == {1}  # equal requests were evaluated once
