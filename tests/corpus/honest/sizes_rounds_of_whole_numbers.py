# task: bit_mix
# expect: credited
# root: sizes
# new: yes
# All rounds in one kernel: shifts and exclusive ors, which are whole-number work.
import torch
import triton
import triton.language as tl


@triton.jit
def mix_kernel(x_ptr, out_ptr, size, rounds, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x_ptr + at, at < size)
    for _ in range(rounds):
        bits = bits ^ (bits << 13)
        bits = bits ^ (bits >> 17)
        bits = bits ^ (bits << 5)
    tl.store(out_ptr + at, bits, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        mix_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), 24, BLOCK=512)
        return out
