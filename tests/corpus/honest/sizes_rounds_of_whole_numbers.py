# task: bit_mix
# expect: credited
# root: sizes
# base: softmax_heuristics
# without: softmax_kernel
# All rounds in one kernel: shifts and exclusive ors, which are whole-number work.
# - softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
# + mix_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), 24, BLOCK=512)

@triton.jit
def mix_kernel(x_ptr, out_ptr, size, rounds, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x_ptr + at, at < size)
    for _ in range(rounds):
        bits = bits ^ (bits << 13)
        bits = bits ^ (bits >> 17)
        bits = bits ^ (bits << 5)
    tl.store(out_ptr + at, bits, at < size)
