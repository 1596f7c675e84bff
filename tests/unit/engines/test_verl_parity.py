"""verl's own code on what we hand it: configuration, agent loop, advantages and masks, loss. Needs verl: ``make
test-verl``."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from places import RECIPES

pytest.importorskip("verl")

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.trainer.ppo import core_algos
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.workers.rollout.replica import TokenOutput
from verl.workers.utils.losses import ppo_loss

from drkernel.config import load_config
from drkernel.engines.verl import agent as agent_module
from drkernel.engines.verl import trainer as trainer_module
from drkernel.engines.verl.start import prepare
from drkernel.engines.verl.translate import translate
from drkernel.engines.verl.turns import pack, unpack
from drkernel.rl.run.learner import TurnRows
from drkernel.rl.run.recipe import Recipe
from drkernel.rl.run.registry import TurnBatch, advantage
from drkernel.tasks.loaders import load_tasks
from drkernel.verdict import Speedup, Verdict
from recorded import columns, learner, own_loss, trajectories
from tiny import tiny_policy

pytestmark = pytest.mark.verl
torch.set_num_threads(1)
SMALL = {
    "policy": {"model": "somewhere", "device": "cpu"},
    "rollout": {"tasks": 7, "samples": 1, "context": 480, "sampling": {"max_tokens": 160, "stop_at_fence": False}},
    "rl": {"steps": 3, "learner": {"scale": 3.0}},
    "verl": {"gpus": 1},
    "train_tasks": {"load": "builtin/level1"},
    "heldout_tasks": {"load": "builtin/level1"},
    "episode": {"turns": 2, "prompts": "compact"},
}


def composed(recipe):
    """verl's whole configuration for a recipe, by its own composition."""
    place = prepare(recipe, "http://127.0.0.1:1").absolute()
    with initialize_config_dir(str(place), version_base=None):
        return compose("run", overrides=["hydra.searchpath=[pkg://verl.trainer.config]"])


def settings(tmp_path, **learner_terms):
    base = {**SMALL, "rl": {"steps": 3, "learner": {"scale": 3.0, **learner_terms}}}
    return composed(load_config(Recipe, base=base, overrides=[f"runs={tmp_path}"]))


OURS = ("mixed_precision", "override_config", "env_vars", "sampler_kwargs")
"""sections of verl's with free keys"""


def leaves(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict) and value and key not in OURS:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@pytest.mark.parametrize("name", ["small", "qwen3-8b", "qwen3-14b"])
def test_every_key_that_we_write_is_one_of_verls_and_it_accepts_the_whole(tmp_path, name):
    over = [f"runs={tmp_path}", "train_tasks.load=builtin/level1", "heldout_tasks.load=builtin/level1", "sft=null"]
    recipe = load_config(Recipe, None if name == "small" else RECIPES / f"{name}.yaml", over,
                         base=SMALL if name == "small" else None)  # fmt: skip
    config = composed(recipe)
    with initialize_config_dir(str(tmp_path), version_base=None):
        (tmp_path / "plain.yaml").write_text("defaults: [ppo_trainer]\n")
        plain = compose("plain", overrides=["hydra.searchpath=[pkg://verl.trainer.config]"])
    at = "actor_rollout_ref."
    ours = (
        "drkernel.",
        "ray_kwargs.ray_init.",
        *(f"{at}{role}.fsdp_config.mixed_precision" for role in ("actor", "ref")),
    )
    defaults = OmegaConf.to_container(plain)
    written = leaves(translate(recipe, "http://127.0.0.1:1"))
    unknown = [key for key in written if not key.startswith(ours) and not holds(defaults, key)]
    assert unknown == []
    validate_config(config, use_reference_policy=False, use_critic=False)


def holds(tree, key):
    for name in key.split("."):
        if not isinstance(tree, dict) or name not in tree:
            return False
        tree = tree[name]
    return True


def nested(rows):
    return torch.nested.as_nested_tensor([row.clone() for row in rows], layout=torch.jagged)


class Queue:
    """verl's queue: columns by name, one batch."""

    def __init__(self, held, rows):
        lengths = [len(r) for r in held.responses]
        self.lengths, self.rows = lengths, rows

        def response(values):
            return nested([values[b, :n] for b, n in enumerate(lengths)])

        def whole(values):  # the model's outputs stand one token before what they predict
            return nested([
                torch.cat([torch.zeros(len(p) - 1), values[b, :n], torch.zeros(1)])
                for b, (p, n) in enumerate(zip(held.prompts, lengths, strict=True))
            ])  # fmt: skip

        self.columns = {
            "response_mask": response(held.mask.long()),
            "rollout_log_probs": response(held.rollout),
            "old_log_probs": response(held.old),
            "sum_pi_squared": whole(held.square),
            "ref_log_prob": response(held.reference),
            "drkernel_turns": nested([pack(facts) for facts in held.facts]),
        }
        self.written = {}

    def kv_batch_get(self, keys, partition_id, select_fields):
        return TensorDict({name: self.columns[name] for name in select_fields}, batch_size=len(keys))

    def kv_batch_put(self, keys, partition_id, fields):
        self.written = {name: fields[name] for name in fields.keys()}  # noqa: SIM118


@pytest.fixture(scope="module")
def recorded():
    policy, start = tiny_policy(), tiny_policy(seed=1)
    plays = trajectories(policy)
    held = columns(policy, plays)
    held.reference = columns(start, plays).old
    return policy, start, plays, held


LEARNT = ("response_mask", "advantages", "rollout_is_weights", "drkernel_shares")
METHODS = (
    {"advantage": {"name": "trloo"}, "rejection": {"name": "prs"}},
    {"advantage": {"name": "otb"}, "rejection": {"name": "prs"}},
    {"advantage": {"name": "otb_loo"}, "rejection": [{"name": "prs"}, {"name": "uninformative", "turns": "any"}]},
    {"advantage": {"name": "otb_tir"}, "mismatch": {"name": "tis_token"}, "aggregation": "token_mean"},
    {"advantage": {"name": "grpo_std"}, "aggregation": "seq_mean_token_mean"},
    {"advantage": {"name": "kevin"}, "loss": {"name": "reinforce"}, "aggregation": "seq_mean_token_sum"},
    {"advantage": {"name": "trloo"}, "rejection": {"name": "prs"}, "kl_coefficient": 0.3, "kl": "k3"},
    {"mismatch": {"name": "tis_token"}, "aggregation": "token_mean", "kl_coefficient": 0.1, "kl": "k1"},
    {"advantage": {"name": "grpo"}, "aggregation": "seq_mean_token_mean", "kl_coefficient": 0.1, "kl": "k2"},
    {"aggregation": "seq_mean_token_sum", "kl_coefficient": 0.1, "kl": "k3"},
)


@pytest.mark.parametrize("number", range(len(METHODS)))
def test_one_recorded_batch_gives_both_engines_the_same_advantages_masks_and_loss(
    tmp_path, monkeypatch, recorded, number
):
    policy, start, plays, held = recorded
    config = settings(tmp_path, **METHODS[number])
    queue = Queue(held, len(plays))
    monkeypatch.setattr(trainer_module, "tq", queue)
    keys = [f"task{play.group}_{play.sample}_0" for play in plays]
    batch = KVBatchMeta(partition_id="train", keys=keys, tags=[{} for _ in keys])
    ours = learner(policy, start, scale=3.0, **METHODS[number])
    me = SimpleNamespace(config=config, learner=ours.config, seed=0, global_steps=6, planned=None)
    metrics = {}
    trainer_module.KernelTrainer._compute_advantage(me, batch, metrics)
    prepared, _ = ours._prepare(plays, seed=5)

    padded = {name: column.to_padded_tensor(0) for name, column in queue.written.items()}
    row, worst = 0, 0.0
    for b, facts in enumerate(held.facts):
        for fact in facts:
            count = fact.end - fact.start
            mask = prepared.mask_BT[row, :count]
            assert torch.equal(padded["response_mask"][b, fact.start : fact.end].bool(), mask)
            wanted = (prepared.advantages_BT[row, :count] * mask).double()
            gap = (padded["advantages"][b, fact.start : fact.end].double() - wanted).abs().max()
            worst, row = max(worst, float(gap)), row + 1
    assert int(padded["response_mask"].sum()) == int(prepared.mask_BT.sum()) and worst < 1e-6

    now = held.old + 0.05 * torch.randn(held.old.shape, generator=torch.Generator().manual_seed(3))
    now.requires_grad_()
    verls = verl_loss(config, queue, held, now, ours.config)
    rows = TurnRows(held.facts, held.groups, held.mask.shape[1])
    own = own_loss(ours, prepared, rows.take(now)[:, : prepared.mask_BT.shape[1]])
    print(f"{ours.config.advantage.name}: loss {verls:.9f} / {own:.9f}, advantages within {worst:.1e}")
    assert float(verls) == pytest.approx(float(own), abs=1e-6) and abs(own) > 1e-4
    slopes = [torch.autograd.grad(loss, now)[0] for loss in (verls, own)]
    assert torch.allclose(*slopes, atol=1e-6) and slopes[1].abs().max() > 1e-3
    assert metrics["drkernel/grader_failed"] == 2 and "drkernel/reward/turn2" in metrics


def verl_loss(config, queue, held, now, terms):
    """The loss of the whole batch that verl's workers compute, given the policy's log-probabilities."""
    loss = partial(ppo_loss, config=omega_conf_to_dataclass(config.actor_rollout_ref.actor))
    if terms.kl_coefficient:
        loss = trainer_module.penalised_loss(config, terms)
    lengths = [len(r) for r in held.responses]
    whole = nested([
        torch.cat([torch.zeros(len(p) - 1), now[b, :n], torch.zeros(1)])
        for b, (p, n) in enumerate(zip(held.prompts, lengths, strict=True))
    ])  # fmt: skip
    data = TensorDict(
        {
            "prompts": nested([torch.tensor(p) for p in held.prompts]),
            "responses": nested([torch.tensor(r) for r in held.responses]),
            **{name: queue.columns[name] for name in ("old_log_probs", "ref_log_prob")},
            **{name: queue.written[name] for name in LEARNT},
        },
        batch_size=len(lengths),
    )
    tu.assign_non_tensor(
        data,
        dp_size=1,
        batch_num_tokens=int(queue.written["loss_mask"].values().sum()),
        global_batch_size=config.actor_rollout_ref.actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n,
    )
    return loss(model_output={"log_probs": whole}, data=data)[0]


def ragged(seed, rows=8, tokens=9):
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, tokens + 1, (rows,), generator=g)
    mask = (torch.arange(tokens) < lengths[:, None]).double()
    probs = torch.softmax(torch.randn(rows, tokens, 6, generator=g, dtype=torch.float64), dim=-1)
    logprobs, square = probs[..., 0].log(), probs.square().sum(-1)
    reward = torch.randn(rows, generator=g, dtype=torch.float64)
    ratios = (0.3 * torch.randn(rows, tokens, generator=g, dtype=torch.float64)).exp() if seed % 2 else None
    return mask, logprobs, square, reward, ratios


TAILS = {"zero": True, "own": False}
"""our names of verl's ``handle_zero_tail``"""
GROUPS = {0: [0] * 4 + [1] * 4, 1: [0] * 7 + [1], 2: [0, 1, 2, 0, 1, 2, 0, 0], 3: list(range(8))}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("seed", range(24))
def test_otb_is_verls_on_single_turns(seed, tail):
    mask, logprobs, square, reward, ratios = ragged(seed)
    index = GROUPS[seed % 4]
    rewards = torch.zeros_like(mask)
    rewards[torch.arange(8), mask.long().sum(1) - 1] = reward
    verls, _ = core_algos.compute_optimal_token_baseline_advantage(
        rewards, mask, index, logprobs, square, rollout_is_weights=ratios, handle_zero_tail=TAILS[tail]
    )
    batch = TurnBatch(reward, torch.tensor(index), torch.arange(8), torch.zeros(8, dtype=torch.int64),
                      torch.ones(8, dtype=torch.bool), logprobs_BT=logprobs, sum_pi_squared_BT=square,
                      mask_BT=mask.bool(), ratios_BT=ratios)  # fmt: skip
    ours = advantage.get("otb")(batch, tail=tail)
    assert torch.allclose(ours * mask, verls.double(), atol=1e-6)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("seed", range(24))
def test_otb_tir_is_verls_on_several_turns(seed, tail):
    mask, logprobs, square, reward, ratios = ragged(seed)
    index = GROUPS[seed % 4]
    whole = mask.clone()
    whole[:, 3] = 0.0  # feedback after three tokens
    lengths = mask.long().sum(1).tolist()
    spans = [(b, start, min(end, lengths[b])) for b in range(8) for start, end in ((0, 3), (4, 9))]
    spans = [(b, start, end) for b, start, end in spans if end > start]
    first = torch.randn(8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rewards = torch.zeros_like(mask)
    for b, start, end in spans:
        rewards[b, end - 1] = reward[b] if start else first[b]
    verls, _ = core_algos.compute_multi_turn_optimal_token_baseline_advantage(
        rewards, whole, index, logprobs, square, rollout_is_weights=ratios, handle_zero_tail=TAILS[tail]
    )
    width = max(end - start for _, start, end in spans)

    def take(values):
        return torch.stack([torch.nn.functional.pad(values[b, s:e], (0, width - (e - s))) for b, s, e in spans])

    batch = TurnBatch(
        torch.stack([rewards[b, end - 1] for b, _, end in spans]), torch.tensor([index[b] for b, *_ in spans]),
        torch.tensor([b for b, *_ in spans]), torch.tensor([int(s > 0) for _, s, _ in spans]),
        torch.ones(len(spans), dtype=torch.bool), logprobs_BT=take(logprobs), sum_pi_squared_BT=take(square),
        mask_BT=take(whole).bool(), ratios_BT=None if ratios is None else take(ratios),
    )  # fmt: skip
    ours = advantage.get("otb_tir")(batch, tail=tail)
    assert torch.allclose(ours * take(whole), take(verls.double()), atol=1e-6)


class Judge:
    """A pool: fast and right for what holds 'fast', an infrastructure error for what holds 'down'."""

    async def evaluate(self, request):
        text = request.candidate
        status = "infra_error" if "down" in text else "correct" if "fast" in text else "incorrect"
        speedup = Speedup(value=2.0, low=2.0, high=2.0, kind="modelled") if status == "correct" else None
        return Verdict(status=status, task_id=request.task.id, candidate_sha256="0" * 64, device="sim:h200",
                       speedup=speedup, coverage=0.75)  # fmt: skip


class Client:
    """verl's client of its rollout servers: says the texts that it is given, whatever is asked."""

    def __init__(self, chat, texts):
        self.chat, self.texts, self.asked = chat, list(texts), []

    async def generate(self, request_id, prompt_ids, sampling_params):
        self.asked.append((list(prompt_ids), sampling_params["max_tokens"]))
        ids = [*self.chat.encode(self.texts.pop(0)), self.chat.end_id]
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed",
                           extra_fields={"global_steps": 4})  # fmt: skip


def fenced(word):
    return f"```python\nclass ModelNew:\n    name = {word}\n```"


@pytest.mark.parametrize(("words", "graded"), [(("slow", "fast"), (True, True)), (("fast", "down"), (True, False))])
async def test_an_episode_is_played_turn_by_turn_with_ids_as_sampled(tmp_path, monkeypatch, words, graded):
    config = composed(load_config(Recipe, base=SMALL, overrides=[f"runs={tmp_path}", "rollout.context=2000",
                                                                 "rollout.sampling.max_tokens=400"]))  # fmt: skip
    chat = tiny_policy().tokenizer
    monkeypatch.setattr(agent_module, "shared_pool", lambda url: Judge())
    client = Client(chat, map(fenced, words))
    wrapped = DictConfigWrap(config)
    loop = agent_module.KernelAgentLoop(
        trainer_config=wrapped, server_manager=client, tokenizer=chat.hf, processor=None, dataset_cls=object,
        data_config=DictConfigWrap(config.data),
    )  # fmt: skip
    task = load_tasks("builtin/level1")[0]
    output = await loop.run({"temperature": 1.0}, extra_info={"task": task.model_dump_json()})
    row = output.as_dict()
    facts = unpack(row["drkernel_turns"])
    assert [fact.graded for fact in facts] == list(graded)
    answers = [[*chat.encode(fenced(word)), chat.end_id] for word in words]
    for fact, ids in zip(facts, answers, strict=True):
        assert output.response_ids[fact.start : fact.end] == ids
    told = output.response_ids[facts[0].end : facts[1].start]
    assert told and client.asked[1][0] == output.prompt_ids + answers[0] + told
    wanted = torch.zeros(len(output.response_ids), dtype=torch.int64)
    for fact in facts:
        wanted[fact.start : fact.end] = int(fact.graded)
    assert torch.equal(row["response_mask"], wanted)
    assert row["rm_scores"].nonzero()[:, 0].tolist() == [f.end - 1 for f in facts if f.reward]
    assert output.reward_score == pytest.approx(float(row["rm_scores"].sum()))
    told_logprobs = row["rollout_log_probs"][facts[0].end : facts[1].start]
    assert not told_logprobs.any() and row["rollout_log_probs"][0] == -0.5


async def test_a_prompt_without_room_for_an_answer_is_refused(tmp_path, monkeypatch):
    config = composed(load_config(Recipe, base=SMALL, overrides=[f"runs={tmp_path}", "rollout.context=170"]))
    chat = tiny_policy().tokenizer
    monkeypatch.setattr(agent_module, "shared_pool", lambda url: Judge())
    loop = agent_module.KernelAgentLoop(
        trainer_config=DictConfigWrap(config), server_manager=Client(chat, []), tokenizer=chat.hf, processor=None,
        dataset_cls=object, data_config=DictConfigWrap(config.data),
    )  # fmt: skip
    task = load_tasks("builtin/level1")[0]
    with pytest.raises(ValueError, match="leaves no room"):
        await loop.run({"temperature": 1.0}, extra_info={"task": task.model_dump_json()})
