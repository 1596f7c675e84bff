"""The lean forward against transformers' own, in every way it is used."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from drkernel.rl.model.lean import LeanDecoder, Packing, is_supported, packed_hidden
from drkernel.rl.model.policy import PocketConfig, make_pocket

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def make_model(name: str):
    torch.manual_seed(0)
    if name == "qwen3":
        pocket = PocketConfig(hidden=32, layers=2, heads=4, kv_heads=2, head_dim=16, mlp=48, context=128)
        model = make_pocket(pocket, 97, 1, 0, 0)
    elif name == "llama":
        model = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False))
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**SIZES))
    with torch.no_grad():  # bring the scores to a size where errors would show
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(5)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture(scope="module", params=["qwen3", "llama", "qwen2"])
def case(request):
    model = make_model(request.param)
    generator = torch.Generator().manual_seed(1)
    sequences = [torch.randint(0, 97, (length,), generator=generator) for length in (30, 7, 45, 1, 22)]
    with torch.no_grad():
        expected = [model(sequence[None]).logits[0] for sequence in sequences]
    return model, sequences, expected


def test_packed_sequences_do_not_see_each_other(case):
    model, sequences, expected = case
    hidden = packed_hidden(model, torch.cat(sequences), Packing.of([len(s) for s in sequences]))
    logits = model.get_output_embeddings()(hidden)
    torch.testing.assert_close(logits, torch.cat(expected), atol=1e-4, rtol=1e-4)


def test_packed_gradients_equal_those_of_separate_sequences(case):
    model, sequences, _ = case
    model.zero_grad()
    packed_hidden(model, torch.cat(sequences), Packing.of([len(s) for s in sequences])).square().sum().backward()
    packed = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    for sequence in sequences:
        model.get_decoder()(sequence[None]).last_hidden_state.square().sum().backward()
    for name, parameter in model.named_parameters():
        if name in packed:
            scale = parameter.grad.abs().max()
            assert (packed[name] - parameter.grad).abs().max() <= 1e-4 * scale + 1e-6, name


def test_decoding_in_pieces_equals_one_forward(case):
    """Prompts of unequal length, single steps, a longer append to some rows, a moved and a reloaded row."""
    model, sequences, expected = case
    decoder = LeanDecoder(model, rows=4, capacity=64)
    a, b, c = sequences[0], sequences[2], sequences[4]
    logits = decoder.extend([0, 1, 2], [a[:5].tolist(), b[:20].tolist(), c[:1].tolist()])
    wanted = [expected[0][4], expected[2][19], expected[4][0]]
    torch.testing.assert_close(logits, torch.stack(wanted), atol=1e-4, rtol=1e-4)
    for t in range(3):
        logits = decoder.step(torch.stack([a[5 + t], b[20 + t], c[1 + t]]))
        wanted = [expected[0][5 + t], expected[2][20 + t], expected[4][1 + t]]
        torch.testing.assert_close(logits, torch.stack(wanted), atol=1e-4, rtol=1e-4)
    saved = decoder.save(0)
    decoder.move(2, 0)  # c goes to row 0
    decoder.clear(2)
    decoder.load(2, saved)  # a comes back in row 2
    logits = decoder.extend([2, 0], [a[8:20].tolist(), c[4:9].tolist()])
    torch.testing.assert_close(logits, torch.stack([expected[0][19], expected[4][8]]), atol=1e-4, rtol=1e-4)
    logits = decoder.step(torch.stack([c[9], b[23], a[20]]))
    wanted = [expected[4][9], expected[2][23], expected[0][20]]
    torch.testing.assert_close(logits, torch.stack(wanted), atol=1e-4, rtol=1e-4)


def test_a_full_cache_is_an_error_that_says_so(case):
    model, sequences, _ = case
    decoder = LeanDecoder(model, rows=1, capacity=8)
    with pytest.raises(ValueError, match="capacity of 8"):
        decoder.extend([0], [sequences[0][:9].tolist()])
    decoder.extend([0], [sequences[0][:8].tolist()])
    with pytest.raises(ValueError, match="capacity of 8"):
        decoder.step(torch.tensor([1]))


def test_refresh_takes_new_weights(case):
    model, sequences, _ = case
    decoder = LeanDecoder(model, rows=1, capacity=64)
    weight = next(p for n, p in model.named_parameters() if n.endswith("layers.0.mlp.up_proj.weight"))
    with torch.no_grad():
        weight.mul_(1.5)
        fresh = model(sequences[0][None]).logits[0, -1]
        stale = decoder.extend([0], [sequences[0].tolist()])[0]
        assert (stale - fresh).abs().max() > 1e-2
        decoder.clear(0)
        decoder.refresh(model)
        torch.testing.assert_close(decoder.extend([0], [sequences[0].tolist()])[0], fresh, atol=1e-4, rtol=1e-4)
        weight.div_(1.5)


def test_models_that_it_would_get_wrong_are_refused():
    config = LlamaConfig(**SIZES, rope_scaling={"rope_type": "linear", "factor": 2.0})
    assert not is_supported(config)
    with pytest.raises(ValueError, match="does not know"):
        LeanDecoder(LlamaForCausalLM(config), rows=1, capacity=8)
