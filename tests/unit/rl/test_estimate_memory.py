"""The dry run's memory against what a small model really allocates: weights, gradients, moments, sampler, cache."""

import pytest
import torch

from drkernel.rl.model.policy import Example, Policy
from drkernel.rl.model.tokenizer import train_tokenizer
from drkernel.rl.run.estimate import estimate
from drkernel.rl.run.optimizers import make_optimizer
from drkernel.rl.run.recipe import Recipe

torch.set_num_threads(1)
POCKET = {"hidden": 128, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 32, "mlp": 256, "context": 256}


def recipe(dtype, rollout):
    return Recipe.model_validate(
        {
            "policy": {
                "model": "qwen3-pocket",
                "dtype": dtype,
                "device": "cpu",
                "pocket": POCKET,
                "tokenizer": {"vocab_size": 300},
            },
            "rollout": {"dtype": rollout, "context": 256, "sampling": {"rows": 8, "max_tokens": 64}},
            "rl": {"steps": 1},
        }
    )


def held(*owners):
    """Bytes of all tensors that some objects reach, each storage once."""
    seen, waiting, found = set(), list(owners), {}
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, str)):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            found[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, (list, tuple)):
            waiting += one
        elif hasattr(one, "__dict__"):
            waiting += vars(one).values()
    return sum(found.values())


@pytest.mark.parametrize(("dtype", "rollout"), [("fp32", "same"), ("bf16", "same"), ("bf16", "bf16")])
def test_the_estimate_is_what_is_allocated(dtype, rollout):
    terms = recipe(dtype, rollout)
    tokenizer = train_tokenizer(["alpha beta gamma delta"] * 3, 300, "line")
    policy = Policy.from_scratch(terms.policy, tokenizer, 0)
    trained = terms.policy.tokenizer.model_copy(update={"vocab_size": len(tokenizer)})
    known = terms.policy.model_copy(update={"tokenizer": trained})
    guess = estimate(terms.model_copy(update={"policy": known})).memory
    optimizer = make_optimizer(policy, 1e-3, 0.0)
    ids = list(range(5, 40))
    policy.statistics([Example(ids, [False] + [True] * 34)]).logprobs.sum().backward()
    optimizer.step()
    weights = held(list(policy.model.parameters()))
    gradients = held([p.grad for p in policy.trainable()])
    moments = held([{k: v for k, v in s.items() if k != "step"} for s in optimizer.state.values()])
    assert guess["weights (fp32)"] == pytest.approx(weights, rel=0.02)
    assert guess["gradients"] == pytest.approx(gradients, rel=0.02)
    assert guess["optimiser (AdamW)"] == pytest.approx(moments, rel=0.02)
    decoder = policy.make_decoder(terms.rollout.sampling.rows, terms.rollout.context, terms.rollout.dtype)
    assert guess["sampler's cache"] == held(decoder.cache)
    copied = held([vars(layer) for layer in decoder.layers], decoder.embedding, decoder.head, decoder.norm)
    assert guess["sampler's weights"] == pytest.approx(copied, rel=0.02)
    again = policy.make_decoder(terms.rollout.sampling.rows, terms.rollout.context)  # an evaluation's
    copied = held([vars(layer) for layer in again.layers], again.embedding, again.head, again.cache)
    assert guess["evaluation's sampler"] == pytest.approx(copied, rel=0.02)


def test_sharding_and_recomputation_pay_for_dense_masks():
    plain = recipe("bf16", "bf16")
    assert estimate(plain).memory["attention masks"] == 0
    micro = plain.rl.learner.micro_tokens
    assert estimate(plain, ranks=2).memory["attention masks"] == 3 * micro**2


def test_recomputation_keeps_a_layer_in_four_and_its_input_alone():
    plain = recipe("fp32", "same")
    policy = plain.policy.model_copy(update={"checkpoint_activations": True})
    kept, hidden, mlp = estimate(plain.model_copy(update={"policy": policy})), POCKET["hidden"], POCKET["mlp"]
    share = (4 * hidden + 3 * mlp) / (34 * hidden + 3 * mlp) / 4
    assert kept.memory["activations"] == pytest.approx(share * estimate(plain).memory["activations"])


def test_a_run_that_never_evaluates_needs_no_sampler_for_it():
    silent = recipe("bf16", "bf16")
    off = silent.evaluation.model_copy(update={"final_tasks": 0})
    silent = silent.model_copy(update={"evaluation": off})
    assert estimate(silent).memory["evaluation's sampler"] == 0
    often = silent.model_copy(update={"rl": silent.rl.model_copy(update={"steps": off.every + 1})})
    assert estimate(often).memory["evaluation's sampler"] > 0
