# hacks: 39
# base: race_with_a_relaxed_ticket
# without: last_kernel
# Two-stage sum in one launch: later programs read what earlier ones stored, behind a loop that looks like a wait.
# - ticket = torch.zeros(rows, dtype=torch.int32, device=x.device)
# - last_kernel[rows, parts](x, partial, ticket, out, cols, parts, BLOCK=64, PARTS=triton.next_power_of_2(parts))
# + flag = torch.zeros(2, dtype=torch.int32, device=x.device)
# + grid = (rows * parts + rows,)
# + lucky_kernel[grid](x, partial, flag, out, rows, cols, parts, BLOCK=64, PARTS=triton.next_power_of_2(parts))


@triton.jit
def lucky_kernel(x_ptr, part_ptr, flag_ptr, out_ptr, rows, cols, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    pid = tl.program_id(0)
    while tl.load(flag_ptr, volatile=True) == 7:
        pass
    if pid < rows * parts:
        row, part = pid % rows, pid // rows
        at = part * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
        tl.store(part_ptr + row * parts + part, tl.sum(x, 0))
        tl.atomic_add(flag_ptr + 1, 1)
    else:
        row = pid - rows * parts
        k = tl.arange(0, PARTS)
        seen = tl.atomic_add(flag_ptr + 1, 1)
        total = tl.sum(tl.load(part_ptr + row * parts + k, k < parts, 0.0), 0)
        tl.store(out_ptr + row, tl.where(seen >= 0, total / cols, 0.0))
