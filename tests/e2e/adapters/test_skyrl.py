"""The SkyRL-Gym adapter, against SkyRL-Gym itself."""

import pytest

from solve_fakes import TextPool, answer, make_tasks

skyrl_gym = pytest.importorskip("skyrl_gym")

from drkernel.adapters import (  # noqa: E402
    InfraError,
    skyrl,
)
from drkernel.episode.episode import EpisodeConfig  # noqa: E402

TASKS = make_tasks(2)


def make(pool, **extras):
    skyrl.register()
    row = {**skyrl.rows(TASKS)[1], **extras}
    return skyrl_gym.make("drkernel", env_config={"turns": 2}, extras=row, pool=pool), row


def test_an_episode_through_skyrl_s_own_make():
    env, row = make(TextPool())
    assert isinstance(env, skyrl_gym.envs.base_text_env.BaseTextEnv) and env.max_turns == 2
    opening, info = env.init(row["prompt"])
    assert opening == row["prompt"] and info == {"task_id": "t/1"} and "ROWS = 2" in opening[0]["content"]
    first = env.step(answer(1.5))
    assert first["reward"] == pytest.approx(0.5 + 0.75 + 0.5) and not first["done"]
    assert first["observations"][0]["role"] == "user" and "Correct." in first["observations"][0]["content"]
    second = env.step(answer("HACK"))
    assert second["done"] and second["reward"] == 0 and second["observations"] == []
    assert second["metadata"]["status"] == "hack" and env.get_metrics()["hack"] == 1.0 and env.turns == 2
    assert skyrl_gym.envs.base_text_env.BaseTextEnv.aggregate_metrics([env.get_metrics()])["hack"] == 1.0
    env.close()


def test_a_system_message_of_the_dataset_stays_and_max_turns_rules():
    env, row = make(TextPool(), max_turns=1)
    opening, _ = env.init([{"role": "system", "content": "Be brief."}, *row["prompt"]])
    assert [message["role"] for message in opening] == ["system", "user"]
    assert env.step(answer(1.1))["done"]


def test_a_grader_that_fails_is_an_error_never_a_zero():
    env, row = make(TextPool())
    env.init(row["prompt"])
    with pytest.raises(InfraError, match="t/1"):
        env.step(answer("INFRA"))


def test_rows_carry_the_whole_task():
    (row, _) = skyrl.rows(TASKS, EpisodeConfig(prompts="compact"))
    env = skyrl.SkyRLKernelEnv({"prompts": "compact"}, row, pool=TextPool())
    assert env.task == TASKS[0] and row["env_class"] == "drkernel"
    assert env.init(row["prompt"])[0] == row["prompt"]


def test_unknown_settings_are_errors():
    with pytest.raises(ValueError, match="trun"):
        skyrl.SkyRLKernelEnv({"trun": 3}, skyrl.rows(TASKS)[0], pool=TextPool())


def test_terms_may_come_as_omegaconf_as_skyrl_hands_them_over():
    omegaconf = pytest.importorskip("omegaconf")
    terms = omegaconf.OmegaConf.create({"turns": 2, "settings": {"device": "sim:h100"}, "reward": {}})
    env = skyrl.SkyRLKernelEnv(terms, skyrl.rows(TASKS)[0], pool=TextPool())
    assert env.max_turns == 2 and env._episode.config.settings.device == "sim:h100"
