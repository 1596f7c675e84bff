"""Muon against its definition, AdamW, and a run that was interrupted."""

import pytest
import torch

from drkernel.config import ConfigError
from drkernel.rl.model.distributed import World
from drkernel.rl.run.optimizers import MOMENTUM, RMS, Muon, make_optimizer, orthogonalised
from tiny import tiny_policy


@pytest.mark.parametrize("shape", [(12, 12), (8, 30), (30, 8)])
def test_orthogonal_matrices_keep_singular_vectors_and_lose_the_scale(shape):
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape) * torch.tensor([1e-6, 1.0, 1e6])[:, None, None]
    for before, after in zip(matrices, orthogonalised(matrices), strict=True):
        left, values, right = torch.linalg.svd(before, full_matrices=False)
        inside = left.T @ after @ right.T
        kept = values > 0.05 * values.max()  # the smallest take more iterations
        assert torch.allclose(inside, torch.diag(inside.diagonal()), atol=2e-3)
        assert inside.diagonal()[kept].min() > 0.6 and inside.diagonal().max() < 1.3
    together = orthogonalised(matrices)
    assert torch.allclose(together[1], orthogonalised(matrices[1:2])[0], atol=1e-5)


def test_an_update_has_the_size_of_adamws_whatever_the_gradient():
    torch.manual_seed(0)
    for size in (1e-5, 1.0, 1e5):
        weight = torch.nn.Parameter(torch.zeros(64, 192))
        optimizer = Muon([weight], [], lr=0.01, weight_decay=0.5)
        weight.grad = size * torch.randn(64, 192)
        optimizer.step()
        assert float(weight.detach().square().mean().sqrt()) == pytest.approx(0.01 * RMS, rel=0.3)


def test_one_matrix_follows_the_definition_step_by_step():
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(6, 9))
    expected, mean = weight.detach().clone(), torch.zeros(6, 9)
    optimizer = Muon([weight], [], lr=0.02, weight_decay=0.1)
    for _ in range(4):
        gradient = torch.randn(6, 9)
        weight.grad = gradient.clone()
        optimizer.step()
        mean = MOMENTUM * mean + (1 - MOMENTUM) * gradient
        ahead = (1 - MOMENTUM) * gradient + MOMENTUM * mean
        expected = expected * (1 - 0.02 * 0.1) - 0.02 * RMS * 3.0 * orthogonalised(ahead[None])[0]
        assert torch.allclose(weight, expected, atol=1e-6)
        assert torch.equal(weight.grad, gradient)


def test_everything_else_moves_as_under_adamw():
    one, two = tiny_policy(), tiny_policy()
    muon, adamw = make_optimizer(one, 1e-2, 0.1, "muon"), make_optimizer(two, 1e-2, 0.1)
    for step in range(3):
        torch.manual_seed(step)
        for a, b in zip(one.trainable(), two.trainable(), strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        muon.step()
        adamw.step()
    moved = {}
    for (name, a), (_, b) in zip(one.model.named_parameters(), two.model.named_parameters(), strict=True):
        moved[name] = torch.allclose(a, b, atol=1e-6)
    by_adamw = {name for name in moved if "embed" in name or "norm" in name or "lm_head" in name}
    assert by_adamw == {name for name, same in moved.items() if same} and len(by_adamw) < len(moved)


def test_a_saved_optimizer_goes_on_as_if_it_had_not_stopped():
    def trained(stop):
        policy = tiny_policy()
        optimizer = make_optimizer(policy, 1e-2, 0.1, "muon")
        for step in range(4):
            if step == stop:
                saved = optimizer.state_dict()
                optimizer = make_optimizer(policy, 1e-2, 0.1, "muon")
                optimizer.load_state_dict(saved)
            torch.manual_seed(step)
            for parameter in policy.trainable():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
        return policy.trainable()

    assert all(torch.equal(a, b) for a, b in zip(trained(None), trained(2), strict=True))


def test_parameters_without_a_gradient_stay():
    policy = tiny_policy()
    before = [parameter.detach().clone() for parameter in policy.trainable()]
    make_optimizer(policy, 1e-2, 0.1, "muon").step()
    assert all(torch.equal(a, b) for a, b in zip(before, policy.trainable(), strict=True))


def test_several_processes_are_refused():
    policy = tiny_policy()
    policy.world = World(rank=0, size=2)
    with pytest.raises(ConfigError, match="whole matrices"):
        make_optimizer(policy, 1e-2, 0.1, "muon")
