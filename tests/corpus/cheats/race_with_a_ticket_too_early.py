# task: row_mean
# hacks: 39
# tier: T1
# root: races
# expect: wrong
# The ticket is drawn before the partial sum is stored, so the last to arrive may read what is not there yet.
import torch
import triton
import triton.language as tl

@triton.jit
def last_kernel(x_ptr, part_ptr, ticket_ptr, out_ptr, cols, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
    ticket = tl.atomic_add(ticket_ptr + row, 1)
    tl.store(part_ptr + row * parts + part, tl.sum(x, 0))
    tl.debug_barrier()
    if ticket == parts - 1:
        k = tl.arange(0, PARTS)
        tl.store(out_ptr + row, tl.sum(tl.load(part_ptr + row * parts + k, k < parts, 0.0), 0) / cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        parts = triton.cdiv(cols, 64)
        out, partial = torch.empty(rows, device=x.device), torch.empty(rows, parts, device=x.device)
        ticket = torch.zeros(rows, dtype=torch.int32, device=x.device)
        last_kernel[rows, parts](x, partial, ticket, out, cols, parts, BLOCK=64, PARTS=triton.next_power_of_2(parts))
        return out
