"""One read and one write: a program keeps all channels of its pixels in registers."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm_kernel(x_ptr, out_ptr, channels, pixels, eps, CHANNELS: tl.constexpr, PIXELS: tl.constexpr):
    image = tl.program_id(1).to(tl.int64) * channels * pixels
    channel = tl.arange(0, CHANNELS)[:, None]
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[None, :]
    at = image + channel * pixels + pixel
    inside = (channel < channels) & (pixel < pixels)
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    mean_square = tl.sum(x * x, axis=0) / channels
    tl.store(out_ptr + at, x / tl.sqrt(mean_square + eps)[None, :], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        images, channels = x.shape[:2]
        pixels = x[0, 0].numel()
        block = 128
        rms_norm_kernel[(triton.cdiv(pixels, block), images)](
            x, out, channels, pixels, self.eps, CHANNELS=triton.next_power_of_2(channels), PIXELS=block, num_warps=8
        )
        return out
