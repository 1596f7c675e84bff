"""A store and live services over it."""

import pytest

from drkernel.serve.app import make_app
from drkernel.serve.service import Service, ServiceTerms
from drkernel.serve.store import Store
from service_kit import CountingPool, LiveServer


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.fixture
def serving(store):
    """``start(pool, slots=..., token=..., **terms of the service)`` gives a live server."""
    servers = []

    def start(pool=None, *, slots=2, token=None, verdict_page=None, listen_options=None, **terms):
        service = Service(store, pool or CountingPool(), slots=slots, terms=ServiceTerms(grace_s=2.0, **terms))
        server = LiveServer(make_app(service, token=token, verdict_page=verdict_page), **(listen_options or {}))
        server.service = service
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()
