import itertools
import math

import pytest
import torch

from drkernel.rl.model.policy import Example, Policy, microbatches
from drkernel.rl.run.optimizers import apply_gradient, make_optimizer
from drkernel.rl.run.sft import (
    SftConfig,
    encode_conversation,
    encode_rows,
    lr_at,
    plan_batches,
    run_sft,
    sft_step,
    split_rows,
)
from tiny import WORDS, answer, prompt, tiny_policy, tiny_tokenizer


def conversation(word, turns=2):
    messages = [{"role": "user", "content": prompt(word)}, {"role": "assistant", "content": answer(word)}]
    for _ in range(turns - 1):
        messages += [
            {"role": "user", "content": f"Good {word}. Improve it."},
            {"role": "assistant", "content": answer(word)},
        ]
    return messages


def test_only_what_the_assistant_wrote_is_trained_on():
    tokenizer = tiny_tokenizer()
    example = encode_conversation(tokenizer, conversation("beta"))
    trained = [i for i, m in zip(example.ids, example.mask, strict=True) if m]
    end = [tokenizer.end_id]
    assert trained == (tokenizer.encode(answer("beta")) + end) * 2
    whole = tokenizer.hf.apply_chat_template(conversation("beta"), tokenize=False)
    assert example.ids == tokenizer.encode(whole)


def test_conversations_that_do_not_alternate_are_refused():
    with pytest.raises(ValueError, match="message 0"):
        encode_conversation(tiny_tokenizer(), [{"role": "assistant", "content": "x"}])


def test_rows_too_long_for_the_context_lose_whole_turns():
    tokenizer = tiny_tokenizer()
    full = encode_conversation(tokenizer, conversation("beta"))
    first = encode_conversation(tokenizer, conversation("beta", turns=1))
    assert [len(e.ids) for e in encode_rows(tokenizer, [conversation("beta")], len(full.ids))] == [len(full.ids)]
    assert [e.ids for e in encode_rows(tokenizer, [conversation("beta")], len(full.ids) - 1)] == [first.ids]
    assert encode_rows(tokenizer, [conversation("beta")], 5) == []


def test_the_gradient_is_that_of_the_mean_over_all_assistant_tokens():
    """Packed, in several forward passes, against transformers' loss sequence by sequence."""
    policy = tiny_policy()
    examples = [
        encode_conversation(policy.tokenizer, conversation(w, t)) for w, t in zip(WORDS, (1, 2, 3, 1), strict=True)
    ]
    total = sum(sum(e.mask) for e in examples)
    loss = torch.zeros(())
    for example in examples:
        logits = policy.model(torch.tensor(example.ids)[None]).logits[0, :-1]
        nll = torch.nn.functional.cross_entropy(logits, torch.tensor(example.ids[1:]), reduction="none")
        loss = loss + (nll * torch.tensor(example.mask[1:])).sum() / total
    loss.backward()
    expected = {name: p.grad.clone() for name, p in policy.model.named_parameters()}
    policy.model.zero_grad()
    seen = {}

    class Spy:
        param_groups = ()

        def step(self):
            seen.update({name: p.grad.clone() for name, p in policy.model.named_parameters()})

        def zero_grad(self, set_to_none):
            pass

    metrics = sft_step(policy, Spy(), examples, 1e-3, SftConfig(micro_tokens=64, clip=1e9))
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(seen[name], gradient, atol=1e-6, rtol=1e-3)


def test_the_generic_forward_agrees_with_the_lean_one():
    policy = tiny_policy()
    generic = Policy(policy.model, policy.tokenizer, policy.config, lean=False)
    assert policy.lean
    examples = [encode_conversation(policy.tokenizer, conversation(word)) for word in WORDS]
    torch.testing.assert_close(
        policy.statistics(examples).logprobs, generic.statistics(examples).logprobs, atol=1e-5, rtol=1e-5
    )


def test_wrong_masks_are_errors():
    policy = tiny_policy()
    with pytest.raises(ValueError, match="nothing before it"):
        policy.statistics([Example([5, 6], [True, True])])
    with pytest.raises(ValueError, match="ids' length"):
        policy.statistics([Example([5, 6], [False])])


def test_it_learns_to_copy_the_word_of_the_prompt():
    policy = tiny_policy()
    examples = [encode_conversation(policy.tokenizer, conversation(word)) for word in WORDS] * 4
    config = SftConfig(epochs=60, lr=1e-2, batch_tokens=256, validation=0.2)
    history = []
    run_sft(policy, make_optimizer(policy, 1e-2, 0.0), examples, config, seed=0, on_step=lambda *a: history.append(a))
    assert history[-1][2]["loss"] < 0.02 and history[-1][2]["val_loss"] < 0.02
    assert history[0][2]["loss"] > 3
    assert history[-1][0] == history[-1][1] == len(history)


def test_training_in_two_parts_gives_the_same_weights():
    def train(stops):
        policy = tiny_policy()
        optimizer = make_optimizer(policy, 1e-3, 0.01)
        examples = [encode_conversation(policy.tokenizer, conversation(word)) for word in WORDS] * 3
        config = SftConfig(epochs=3, batch_tokens=256, validation=0.0)

        class Stop(Exception):
            pass

        start = 0
        for stop in [*stops, None]:

            def on_step(done, steps, metrics, stop=stop):
                if done == stop:
                    raise Stop

            try:
                run_sft(policy, optimizer, examples, config, seed=1, start=start, on_step=on_step)
            except Stop:
                start = stop
        return policy

    whole, parts = train([]), train([2, 3])
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_plans_cover_every_row_each_epoch():
    lengths = [10, 30, 20, 40, 25]
    plan = plan_batches(lengths, SftConfig(epochs=2, batch_tokens=64), seed=3)
    rows = [row for batch in plan for row in batch]
    assert sorted(rows[:5]) == sorted(rows[5:]) == [0, 1, 2, 3, 4]
    assert plan == plan_batches(lengths, SftConfig(epochs=2, batch_tokens=64), seed=3)
    half = plan_batches(lengths, SftConfig(epochs=0.5, batch_tokens=64), seed=3)
    assert 60 <= sum(lengths[row] for batch in half for row in batch) <= 110
    by_rows = plan_batches(lengths, SftConfig(epochs=2, batch_rows=2), seed=3)
    assert [len(batch) for batch in by_rows] == [2, 2, 1, 2, 2, 1]


def test_microbatches_respect_the_budget_and_hold_every_row_once():
    lengths = [100, 3, 50, 49, 700, 3]
    batches = microbatches(lengths, 100)
    assert sorted(i for b in batches for i in b) == list(range(6))
    assert all(sum(lengths[i] for i in b) <= 100 or len(b) == 1 for b in batches)


def test_learning_rate_rises_then_falls_to_its_floor():
    config = SftConfig(lr=1.0, warmup=0.1, final_lr=0.2)
    rates = [lr_at(step, 100, config) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * k for k in range(1, 11)])
    assert all(a >= b for a, b in itertools.pairwise(rates[9:]))
    assert rates[-1] == pytest.approx(0.2, abs=1e-3)


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone():
    policy = tiny_policy()
    before = [p.clone() for p in policy.model.parameters()]
    optimizer = make_optimizer(policy, 1e-2, 0.0)
    for parameter in policy.model.parameters():
        parameter.grad = torch.full_like(parameter, math.nan)
    norm, skipped = apply_gradient(policy, optimizer, 1e-2, 1.0)
    assert skipped and math.isnan(norm)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))
    assert all(p.grad is None for p in policy.model.parameters())


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 0.5, 1.0])
def test_splits_are_disjoint_and_complete_and_leave_a_row_for_training_however_few_there_are(share):
    for count in (1, 2, 3, 4, 5, 100):
        training, validation = split_rows(count, share, seed=3)
        assert training and sorted([*training, *validation]) == list(range(count))
        assert len(validation) == (min(count - 1, round(count * share)) if count > 1 else 0)
