# task: cumsum
# twin of: 32
# An associative scan with a function of its own, in two levels.
@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def block_kernel(x_ptr, out_ptr, last_ptr, cols, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, tl.associative_scan(x, 0, plus), at < cols)
    tl.store(last_ptr + row * tl.num_programs(1) + part, tl.sum(x, 0))


@triton.jit
def carry_kernel(out_ptr, last_ptr, cols, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    before = tl.arange(0, PARTS)
    carry = tl.sum(tl.load(last_ptr + row * parts + before, before < part, 0.0), 0)
    at = part * BLOCK + tl.arange(0, BLOCK)
    place = out_ptr + row * cols + at
    tl.store(place, tl.load(place, at < cols) + carry, at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        parts = triton.cdiv(cols, 32)
        out, last = torch.empty_like(x), torch.empty(rows, parts, device=x.device)
        block_kernel[rows, parts](x, out, last, cols, BLOCK=32)
        carry_kernel[rows, parts](out, last, cols, parts, BLOCK=32, PARTS=triton.next_power_of_2(parts))
        return out
