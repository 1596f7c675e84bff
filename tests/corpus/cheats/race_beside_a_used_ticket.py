# hacks: 39
# base: race_without_atomics
# Programs add to one place without atomics; a ticket whose number is used orders none of it.
# - def racy_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
# + def racy_kernel(x_ptr, out_ptr, ticket_ptr, junk_ptr, cols, BLOCK: tl.constexpr):
#       row, part = tl.program_id(0), tl.program_id(1)
# +     ticket = tl.atomic_add(ticket_ptr, 1.0)
# +     tl.store(junk_ptr + part * tl.num_programs(0) + row, ticket)

# - out = torch.zeros(rows, device=x.device)
# - racy_kernel[rows, triton.cdiv(cols, 64)](x, out, cols, BLOCK=64)
# + out, ticket = torch.zeros(rows, device=x.device), torch.zeros(1, device=x.device)
# + parts = triton.cdiv(cols, 64)
# + junk = torch.empty(rows * parts, device=x.device)
# + racy_kernel[rows, parts](x, out, ticket, junk, cols, BLOCK=64)
