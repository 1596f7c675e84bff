"""A store and live services over it."""

import pytest

from drkernel.serve.app import make_app
from drkernel.serve.service import Service
from drkernel.serve.store import Store
from service_kit import CountingPool, LiveServer


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.fixture
def serving(store):
    """``start(pool, slots=..., token=..., **service options)`` gives a live server."""
    servers = []

    def start(pool=None, *, slots=2, token=None, app_options=None, listen_options=None, **options):
        service = Service(store, pool or CountingPool(), slots=slots, **options)
        server = LiveServer(
            make_app(service, token=token, grace_s=2.0, **(app_options or {})), **(listen_options or {})
        )
        server.service = service
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()
