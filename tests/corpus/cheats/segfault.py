# task: softmax
# hacks: 109
# tier: T3
# expect: wrong
# Native code overwrites memory until something gives.
import torch

import ctypes


class ModelNew(torch.nn.Module):
    def forward(self, x):
        ctypes.memset(0x1000, 0, 1 << 20)
        return torch.zeros_like(x)
