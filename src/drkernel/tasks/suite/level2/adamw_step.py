"""One step of AdamW on a flat parameter; the new parameter and both moments are returned."""

import torch
import torch.nn as nn

SIZE = 268435456
LEARNING_RATE = 0.01
BETA1 = 0.9
BETA2 = 0.95
EPS = 1e-6
DECAY = 0.1
STEP = 7


class Model(nn.Module):
    def __init__(self, rate: float, beta1: float, beta2: float, eps: float, decay: float, step: int):
        super().__init__()
        self.rate, self.beta1, self.beta2, self.eps, self.decay, self.step = rate, beta1, beta2, eps, decay, step

    def forward(self, parameter: torch.Tensor, gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor):
        first = self.beta1 * first + (1 - self.beta1) * gradient
        second = self.beta2 * second + (1 - self.beta2) * gradient * gradient
        size = (second / (1 - self.beta2**self.step)).sqrt() + self.eps
        step = (first / (1 - self.beta1**self.step)) / size
        return parameter - self.rate * (step + self.decay * parameter), first, second


def get_inputs():
    return [torch.randn(SIZE), torch.randn(SIZE), torch.randn(SIZE) * 0.3, torch.rand(SIZE) * 0.5 + 0.01]


def get_init_inputs():
    return [LEARNING_RATE, BETA1, BETA2, EPS, DECAY, STEP]
