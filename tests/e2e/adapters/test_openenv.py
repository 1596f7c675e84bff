"""The OpenEnv adapter: a real server, several clients over its own protocol."""

import asyncio
import socket
import threading

import pytest

from solve_fakes import TextPool, answer, make_tasks

pytest.importorskip("openenv.core")

from drkernel.adapters.openenv import KernelAction, KernelClient, KernelEnvironment, make_app
from waiting import until


@pytest.fixture(scope="module")
def url():
    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(make_app(make_tasks(3), {"turns": 2}, TextPool()), log_level="error"))
    thread = threading.Thread(target=server.run, args=[[listener]], daemon=True)
    thread.start()
    until(lambda: server.started, 30)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


async def test_an_episode_over_the_wire(url):
    async with KernelClient(base_url=url) as env:
        opened = await env.reset(task_id="t/2")
        assert opened.observation.task_id == "t/2" and "ROWS = 3" in opened.observation.text
        first = await env.step(KernelAction(text=answer(1.5)))
        assert first.reward == pytest.approx(1.75) and not first.done
        assert first.observation.speedup == 1.5 and first.observation.status == "correct"
        assert "Correct." in first.observation.text and first.observation.turn == 2
        second = await env.step(KernelAction(text=answer("HACK")))
        assert second.done and second.reward == 0 and second.observation.findings == ["no_custom_kernel"]
        assert (await env.state()).step_count == 2


async def test_sessions_do_not_mix(url):
    async def play(task, speed):
        async with KernelClient(base_url=url) as env:
            await env.reset(task_id=task)
            await asyncio.sleep(0.05)
            return await env.step(KernelAction(text=answer(speed)))

    results = await asyncio.gather(*(play(f"t/{i % 3}", 1 + i / 10) for i in range(6)))
    assert [r.observation.task_id for r in results] == [f"t/{i % 3}" for i in range(6)]
    assert [r.observation.speedup for r in results] == [1 + i / 10 for i in range(6)]


def test_a_grade_that_failed_has_no_reward_and_a_seed_decides_the_task():
    env = KernelEnvironment(make_tasks(3), pool=TextPool())
    names = [env.reset(seed=seed).task_id for seed in (0, 1, 2, 3, 0)]
    assert names[0] == names[4] and len(set(names)) > 1
    failed = env.step(KernelAction(text=answer("INFRA")))
    assert failed.reward is None and failed.done and failed.status == "infra_error"
    with pytest.raises(ValueError, match="no task 'x' here"):
        env.reset(task_id="x")
