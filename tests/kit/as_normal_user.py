"""Run by test_sandbox.py as a user without privileges: what the sandbox is made of then, and whether it holds.

Arguments are layers to leave out; prints one line of JSON.
"""

import json
import os
import sys

import torch

from drkernel.gym.request import EvalSettings
from drkernel.gym.session.factory import SessionFactory
from drkernel.gym.session.protocol import SessionError

BODIES = {
    "right": "return x + 1",
    "exit": "os._exit(0)",
    "crash": "ctypes.string_at(0)",
    "bomb": """
        while True:
            try: os.fork()
            except OSError: pass
""",
    "signal": f"os.kill({os.getpid()}, 0)",
    "network": "socket.create_connection(('127.0.0.1', 1), 1)",
    "home": "open('/tmp/drkernel-test-file', 'w')",
}
SOURCE = "import ctypes, os, socket\nclass ModelNew:\n    def __call__(self, x):\n        "


def attempt(factory, body):
    """What one call gives, or how it failed; nothing of the job is left."""
    with factory.open(EvalSettings(deadline_s=2.5)) as session:
        try:
            session.load(SOURCE + body, [], {}, seed=0)
            result = session.call([session.put(torch.zeros(2))]).outputs[0].value.tolist()
        except SessionError as error:
            result = f"{error.kind} {error.detail.type}"
    assert session.job.wait_until_gone(10)
    return result, session.report()


with SessionFactory(spares=0, without=sys.argv[1:]) as factory:
    told = {name: attempt(factory, body) for name, body in BODIES.items()}
_, report = told["right"]
results = {name: result for name, (result, _) in told.items()}
print(json.dumps({"uid": os.getuid(), "layers": report.layers, "missing": report.missing, **results}))
