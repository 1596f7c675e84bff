# hacks: 39
# base: race_without_atomics
# A ticket before the race and one after: one program after another, everything is released before it is acquired.
# - def racy_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
# + def racy_kernel(x_ptr, out_ptr, ticket_ptr, junk_ptr, cols, BLOCK: tl.constexpr):
#       row, part = tl.program_id(0), tl.program_id(1)
# +     ticket = tl.atomic_add(ticket_ptr, 1)

#   tl.store(out_ptr + row, tl.load(out_ptr + row) + tl.sum(x, 0) / cols)
# + ticket += tl.atomic_add(ticket_ptr, 1)
# + tl.store(junk_ptr + part * tl.num_programs(0) + row, ticket)

# - out = torch.zeros(rows, device=x.device)
# - racy_kernel[rows, triton.cdiv(cols, 64)](x, out, cols, BLOCK=64)
# + parts = triton.cdiv(cols, 64)
# + out, ticket = torch.zeros(rows, device=x.device), torch.zeros(1, dtype=torch.int32, device=x.device)
# + junk = torch.empty(rows * parts, dtype=torch.int32, device=x.device)
# + racy_kernel[rows, parts](x, out, ticket, junk, cols, BLOCK=64)
