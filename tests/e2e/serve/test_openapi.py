"""The OpenAPI document is true: whatever is sent according to it, or against it, is answered as it says."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from drkernel.serve.app import make_app
from drkernel.serve.service import Service, ServiceTerms
from drkernel.serve.store import Store
from service_kit import CountingPool, LiveServer

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install 'drkernel[test]'")


class Impatient(Service):
    """Waits for nothing: drawn waits of minutes would make the test slow, not better."""

    async def wait(self, job_id, seconds):
        return await super().wait(job_id, 0.0)

    async def lease(self, worker, wait_s=0.0, kinds=None):
        return await super().lease(worker, 0.0, kinds)


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("openapi") / "s.sqlite")
    server = LiveServer(make_app(Impatient(store, CountingPool(), slots=1, terms=ServiceTerms(grace_s=1.0))))
    loaded = schemathesis.openapi.from_url(server.url + "/openapi.json")
    loaded.config.generation.update(allow_x00=False)  # that sources hold no NUL cannot be said in a schema
    yield loaded
    server.stop()
    store.close()


def check(operation, mode, examples):
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def answers_as_documented(case):
        case.call_and_validate()

    answers_as_documented()


@pytest.mark.timeout(1200)  # 40 requests to each of 25 routes
@pytest.mark.parametrize("examples", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_answers_are_as_the_document_says(document, examples):
    operations = [found.ok() for found in document.get_all_operations()]
    asked = [operation for operation in operations if operation.path != "/v1/events"]  # a stream does not end
    assert len(asked) > 15
    for operation in asked:
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            try:
                check(operation, mode, examples)
            except Unsatisfiable:
                assert mode == schemathesis.GenerationMode.NEGATIVE  # a request without input cannot be wrong


def test_every_operation_is_explained_and_bodies_have_examples(document):
    paths = document.raw_schema["paths"]
    assert {"/v1/jobs", "/v1/events", "/v1/worker/lease", "/evaluate", "/health", "/metrics"} <= set(paths)
    for path, methods in paths.items():
        for method, operation in methods.items():
            assert operation.get("description"), (method, path)
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is not None:
                assert content.get("examples") or content.get("example"), (method, path)
